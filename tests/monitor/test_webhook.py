"""Telling webhooks: real HTTP against a target of our own; what stands between them is a virtual clock."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from certs import Authority
from hook import Hook, serving
from monitor_bench import Bench, Time, create
from outbox_world import Told
from support import eventually

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.announcing import body_of_test
from rankpulse.core.keys import Keys
from rankpulse.core.outbox import PAUSE_MAX_S
from rankpulse.core.settings import Settings, WebhookSettings, preset
from rankpulse.core.targets import ALERTMANAGER, PAGERDUTY, SLACK, WebhookTarget
from rankpulse.monitor.clock import system
from rankpulse.monitor.main import Monitor
from rankpulse.monitor.vitals import Vitals
from rankpulse.monitor.webhook import Postman
from rankpulse.store.api import Store
from rankpulse.store.etcd import open_store
from rankpulse.store.memory import MemoryStore

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    async with serving(Hook(key=KEY.encode())) as made:
        yield made


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    return path


class Office:
    """A postman and what it says."""

    def __init__(self, *targets: WebhookTarget, timeout_s: float = 5.0) -> None:
        self.told: list[ev.Posted] = []
        self.leads, self.vitals = True, Vitals()
        self.postman = Postman(
            WebhookSettings(targets=targets, timeout_s=timeout_s),
            self.told.append,
            leads=lambda: self.leads,
            clock=Time().clock(),
            vitals=self.vitals,
        )

    async def post(self, target: str = "t", body: str | None = None) -> ev.Posted:
        before = len(self.told)
        made = body_of_test("test-1", cluster="c", at=1.8e9, author="ann", reason="why not")
        outgoing = r.Outgoing(event="test-1", target=target, body=made if body is None else body, first_at=0.0)
        self.postman.send([ev.Post(outgoing, 1)])
        await eventually(lambda: len(self.told) > before, 10, "an answer")
        return self.told[-1]


def cloud(hook: Hook, key_file: Path, **change: Any) -> WebhookTarget:
    return WebhookTarget(**{"name": "t", "url": hook.url, "secret_file": str(key_file), **change})


async def test_a_signed_cloud_event_arrives(hook: Hook, key_file: Path) -> None:
    posted = await Office(cloud(hook, key_file)).post()
    assert (posted.outcome, posted.event, posted.target, posted.number) == (ev.TAKEN, "test-1", "t", 1)
    ((path, headers, body),) = hook.requests
    assert (path, headers["content-type"]) == ("/hook", "application/cloudevents+json; charset=utf-8")
    assert headers["webhook-timestamp"] == str(int(1.7e9 + 1000))
    event = json.loads(body)
    assert event["id"] == headers["webhook-id"]
    assert (event["specversion"], event["type"], event["source"]) == ("1.0", "rankpulse.test", "/rankpulse/c")
    assert event["time"] == "2027-01-15T08:00:00.000Z"


async def test_a_key_is_changed_without_a_gap(hook: Hook, key_file: Path) -> None:
    office = Office(cloud(hook, key_file))
    key_file.write_text(f"another key of some length\n{KEY}\n")
    assert (await office.post()).outcome == ev.TAKEN
    assert hook.requests[0][1]["webhook-signature"].count("v1,") == 2


async def test_other_kinds_get_their_own_form(hook: Hook, tmp_path: Path) -> None:
    hook.key = b""
    secret = tmp_path / "secret"
    secret.write_text("T0/B0/xyz")
    targets = [
        WebhookTarget(name="a", url=f"{hook.url}/api/v2/alerts", kind=ALERTMANAGER, secret_file=str(secret)),
        WebhookTarget(name="s", url=f"{hook.url}/services/", kind=SLACK, secret_file=str(secret)),
        WebhookTarget(name="p", url=f"{hook.url}/v2/enqueue", kind=PAGERDUTY, secret_file=str(secret)),
    ]
    office = Office(*targets)
    for target in targets:
        assert (await office.post(target.name)).outcome == ev.TAKEN
    (_, headers, alerts), (path, _, slack), (_, _, duty) = hook.requests
    assert headers["authorization"] == "Bearer T0/B0/xyz"
    assert json.loads(alerts)[0]["labels"]["alertname"] == "RankpulseTest"
    assert path == "/hook/services/T0/B0/xyz"
    assert "why not" in json.loads(slack)["text"]
    assert (json.loads(duty)["routing_key"], json.loads(duty)["event_action"]) == ("T0/B0/xyz", "trigger")


async def test_redirects_lead_nowhere(hook: Hook, key_file: Path) -> None:
    async with serving(Hook(status=307, headers={"Location": hook.url})) as first:
        posted = await Office(cloud(first, key_file)).post()
    assert (posted.outcome, hook.requests) == (ev.FAILED, [])
    assert "redirects are not followed" in posted.detail


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "pause_s"),
    [
        (500, {}, ev.FAILED, 0.0),
        (404, {}, ev.FAILED, 0.0),
        (410, {}, ev.GONE, 0.0),
        (429, {"Retry-After": "120"}, ev.FAILED, 120.0),
        (503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, ev.FAILED, 0.0),
        (503, {"Retry-After": "-5"}, ev.FAILED, 0.0),
        (503, {"Retry-After": "9" * 400}, ev.FAILED, PAUSE_MAX_S),
    ],
)
async def test_what_an_answer_means(
    hook: Hook, key_file: Path, status: int, headers: dict[str, str], outcome: str, pause_s: float
) -> None:
    hook.status, hook.headers, hook.text = status, headers, "out of \x1b[2J order" + "." * 100_000
    posted = await Office(cloud(hook, key_file)).post()
    assert (posted.outcome, posted.pause_s) == (outcome, pause_s)
    assert f"answered {status}: out of" in posted.detail
    assert posted.detail.isprintable()
    assert len(posted.detail) < 400


async def test_one_that_hangs_is_left_in_time_and_delays_nobody(hook: Hook, key_file: Path) -> None:
    async with serving(Hook(hang=True)) as silent:
        office = Office(cloud(silent, key_file, name="silent"), cloud(hook, key_file), timeout_s=0.5)
        slow = asyncio.create_task(office.post("silent"))
        await eventually(lambda: silent.requests, 5, "the request")
        assert (await office.post()).target == "t"
        await eventually(lambda: len(office.told) == 2, 5, "the other answer")
        await slow
    assert (office.told[-1].target, office.told[-1].outcome) == ("silent", ev.FAILED)
    assert office.told[-1].detail == "no answer within 0.5 s"


async def test_where_nobody_listens_or_somebody_else_does(key_file: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    office = Office(cloud(Hook(port=port), key_file), cloud(Hook(port=1), key_file, name="nobody"))
    async with server:
        assert (await office.post()).outcome == ev.FAILED
        posted = await office.post("nobody")
    assert (posted.outcome, posted.detail) == (ev.FAILED, "cannot connect: Connection refused")


async def test_https_is_verified(tmp_path: Path, key_file: Path) -> None:
    authority = Authority(tmp_path, "good")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.issue("hook"))
    async with serving(Hook(key=KEY.encode()), tls) as hook:
        url = hook.url.replace("http://", "https://")
        trusting = cloud(hook, key_file, name="trusting", url=url, ca_file=authority.ca_file)
        office = Office(cloud(hook, key_file, url=url), trusting)
        posted = await office.post()
        assert (posted.outcome, hook.requests) == (ev.FAILED, [])
        assert "certificate is not trusted" in posted.detail
        assert (await office.post("trusting")).outcome == ev.TAKEN


async def test_https_where_nobody_speaks_it_is_said(hook: Hook, key_file: Path) -> None:
    posted = await Office(cloud(hook, key_file, url=hook.url.replace("http://", "https://"))).post()
    assert posted.outcome == ev.FAILED
    assert posted.detail.startswith("no TLS with it: ")
    assert "not permitted" not in posted.detail


@pytest.mark.parametrize("said", ["Cannot POST /hook/services/{}", "{}", "." * 290 + "{}"])
async def test_a_target_that_repeats_a_secret_does_not_bring_it_into_the_store(
    hook: Hook, tmp_path: Path, said: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("T0123/B0123/nobodymayknowthis")
    hook.status, hook.text = 404, said.format(secret.read_text())
    target = WebhookTarget(name="t", url=f"{hook.url}/services/", kind=SLACK, secret_file=str(secret))
    posted = await Office(target).post()
    assert posted.detail.startswith("answered 404")
    assert not any(part in posted.detail for part in ("T0123/B", "nobodymay"))


@pytest.mark.parametrize("text", ["short", "\n\n", "whsec_???", "a" * 5000, "\x00" * 40, "ü" * 40])
async def test_a_secret_that_cannot_serve_is_said_and_not_shown(hook: Hook, key_file: Path, text: str) -> None:
    key_file.write_text(text)
    posted = await Office(cloud(hook, key_file)).post()
    assert (posted.outcome, hook.requests) == (ev.FAILED, [])
    assert posted.detail.startswith("its secret_file cannot serve")
    assert text.strip() == "" or text not in posted.detail


async def test_files_that_are_not_there_are_named(hook: Hook, key_file: Path, tmp_path: Path) -> None:
    posted = await Office(cloud(hook, tmp_path / "none")).post()
    assert "none: No such file" in posted.detail
    posted = await Office(cloud(hook, key_file, ca_file=str(tmp_path / "none.pem"))).post()
    assert posted.detail == "its ca_file cannot serve: No such file or directory"


async def test_who_does_not_lead_sends_nothing(hook: Hook, key_file: Path) -> None:
    office = Office(cloud(hook, key_file))
    office.leads = False
    assert (await office.post()).outcome == ev.UNSENT
    assert (await office.post("stranger")).outcome == ev.UNSENT
    assert hook.requests == []


@pytest.mark.parametrize("body", ["", "nonsense", "[]", "{}", '{"data": 5, "id": "x"}', '{"id": 7}'])
async def test_an_event_that_is_none_of_ours_is_not_tried_again(hook: Hook, body: str) -> None:
    office = Office(WebhookTarget(name="t", url=hook.url, kind=SLACK))
    assert (await office.post(body=body)).outcome == ev.GONE
    assert hook.requests == []


async def test_attempts_are_counted_by_target_and_outcome(hook: Hook, key_file: Path) -> None:
    office = Office(cloud(hook, key_file))
    hook.status = 500
    await office.post()
    hook.status = 200
    await office.post()
    assert dict(office.vitals.posts) == {("t", ev.FAILED): 1, ("t", ev.TAKEN): 1}


async def test_closing_leaves_nothing_behind(key_file: Path) -> None:
    async with serving(Hook(hang=True)) as silent:
        office = Office(cloud(silent, key_file))
        task = asyncio.create_task(office.post())
        await eventually(lambda: silent.requests, 5, "the request")
        await office.postman.close()
        task.cancel()
        assert office.told == []


# --- with the engine


async def pass_time(world: Told, postman: Postman, answers: list[ev.Posted], seconds: float) -> None:
    """Virtual seconds; each attempt is a real exchange, whose end is folded before time goes on."""
    for _ in range(round(seconds)):
        world.run(1.0, step_s=0.5)
        posts, world.posts = world.posts, []
        answers.clear()
        postman.send(posts)
        await eventually(lambda sent=posts: len(answers) >= len(sent), 10, "the answers")
        for posted in answers:
            world.engine.step(posted._replace(received_at=world.now))


class Quiet(Told):
    """Posts are left to the test."""

    def tick(self) -> None:
        for action in self.engine.tick(self.now, self.now):
            self.apply(action)


@pytest.mark.parametrize("trouble", ["answers 500", "hangs"])
async def test_ten_minutes_of_trouble_and_then_the_event_once(hook: Hook, key_file: Path, trouble: str) -> None:
    told = WebhookSettings(targets=(cloud(hook, key_file),), timeout_s=0.05 if trouble == "hangs" else 5.0)
    world = Quiet(settings=msgspec.structs.replace(preset("drill"), webhook=told))
    answers: list[ev.Posted] = []
    postman = Postman(told, answers.append, leads=lambda: True, clock=system(), vitals=Vitals())
    hook.status, hook.hang = (500, False) if trouble == "answers 500" else (200, True)
    world.job_dies()
    await pass_time(world, postman, answers, 600)
    assert len(hook.requests) > 10
    hook.status, hook.hang, hook.effects = 200, False, {}
    before = len(hook.requests)
    await pass_time(world, postman, answers, 62)
    assert [event["type"] for event in hook.effects.values()] == ["rankpulse.page"]
    assert len(hook.requests) == before + 1
    (outgoing,) = world.outbox().values()
    assert (outgoing.state, outgoing.body) == ("delivered", "")
    await pass_time(world, postman, answers, 30)
    assert len(hook.requests) == before + 1


async def test_answers_are_folded_in_their_turn_and_survive_a_new_listing() -> None:
    time = Time()
    bench = Bench(MemoryStore(time), time)
    bench.loop.hear(ev.Posted("i1-page", "t", 1, ev.TAKEN, "", 0.0, 1.0))
    bench.loop.follow_anew()
    await bench.loop.turn()
    assert bench.engine.names() == ["Posted"]
    await bench.loop.close()


@pytest.mark.parametrize("leads", [True, False])
async def test_only_the_leader_tells_also_where_its_writes_fail(hook: Hook, key_file: Path, *, leads: bool) -> None:
    time = Time()
    bench, office = Bench(MemoryStore(time), time), Office(cloud(hook, key_file))
    bench.loop._postman = office.postman
    bench.loop.follow_anew()
    if leads:
        await bench.election.campaign()
    await eventually(lambda: _turned(bench), 5, "a listing")
    assert bool(bench.loop.office) == leads
    made = body_of_test("test-1", cluster="c", at=1.8e9, author="ann", reason="why not")
    post = ev.Post(r.Outgoing(event="test-1", target="t", body=made, first_at=0.0), 1)
    bench.store.outage(True)
    bench.engine.plans = [(create(), post)]
    await bench.loop.turn()
    if leads:
        await eventually(lambda: office.told, 5, "the answer")
    assert len(hook.requests) == int(leads)
    await bench.loop.close()


async def _turned(bench: Bench) -> bool:
    """Three turns after a listing was folded."""
    bench.time.seconds += 0.1
    await bench.loop.turn()
    return len(bench.engine.ticks) >= 3


# --- with a real store


async def read(store: Store, key: str) -> r.Outgoing | None:
    item = await store.get(key)
    return codec.decode(r.Outgoing, item.value) if item is not None else None


class Life:
    """A monitor in this process; `kill` ends it as SIGKILL would: it says goodbye to nobody."""

    def __init__(self, settings: Settings) -> None:
        self.monitor = Monitor(settings, system())
        self.tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> "Life":
        self.store = await open_store(self.monitor.settings.store)
        self.tasks = [asyncio.ensure_future(part) for part in self.monitor.assemble(self.store)]
        return self

    async def kill(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.store.close()


@pytest.mark.live
async def test_a_successor_tells_what_its_predecessor_could_not(
    etcd: str, cluster: str, hook: Hook, key_file: Path
) -> None:
    def settings(name: str) -> Settings:
        base = preset("drill")
        return msgspec.structs.replace(
            base,
            cluster=cluster,
            store=msgspec.structs.replace(base.store, endpoints=(etcd,)),
            monitor=msgspec.structs.replace(base.monitor, name=name, lease_ttl_s=2.0),
            webhook=WebhookSettings(targets=(cloud(hook, key_file),), retry_max_s=2.0),
        )

    keys = Keys(cluster)
    store = await open_store(settings("w").store)
    incident = r.Incident(
        id="i0001-0001", klass="unknown", state="closed", opened_at=1.8e9, action="page", told=("page/t",)
    )
    await store.put(keys.incident(incident.id), codec.encode(incident))
    outgoing = keys.outgoing("i0001-0001-page", "t")
    hook.status = 500
    first = await Life(settings("m1")).start()
    second = await Life(settings("m2")).start()

    async def tried() -> bool:
        found = await read(store, outgoing)
        return found is not None and found.attempts >= 2

    async def done() -> bool:
        found = await read(store, outgoing)
        return found is not None and found.state == "delivered"

    try:
        await eventually(tried, 30, "attempts of the first")
        await first.kill()
        hook.status = 200
        await eventually(done, 30, "the event to be delivered")
        assert [event["data"]["incident"] for event in hook.effects.values()] == ["i0001-0001"]
        found = await read(store, outgoing)
        assert found is not None
        assert found.attempts >= 3
        assert len({headers["webhook-id"] for _, headers, _ in hook.requests}) == 1
    finally:
        await first.kill()
        await second.kill()
        await store.close()
