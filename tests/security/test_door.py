"""Who comes in at the HTTP ports of agent and monitor, and what becomes of everybody else."""

import asyncio
import base64
import logging
import resource
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from certs import Authority
from doors import open_door
from prometheus_client import CollectorRegistry
from support import eventually

from rankpulse.core import asked_over_http, door
from rankpulse.core.asked_over_http import Ask, Unclear
from rankpulse.core.buckets import Buckets
from rankpulse.core.door import ACT, READ, Caller, Knock, Refusal
from rankpulse.core.settings import BadSettings, HttpSettings, parse
from rankpulse.monitor.acts import Acts, NotDone
from rankpulse.monitor.clock import system
from rankpulse.monitor.http import Pages
from rankpulse.store.api import StoreError
from rankpulse.web.connections import Connections
from rankpulse.web.door import Door
from rankpulse.web.tls import Certificates
from rankpulse.web.tokens import Callers

READS, ACTS = "readreadreadread", "actsactsactsacts"
KNOWN = door.callers([f"read prometheus {READS}", "# people", f"act ann {ACTS}"])
HERE = "127.0.0.1"


def basic(token: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{token}".encode()).decode()


def knock(authorization: str = "", method: str = "GET", **more: Any) -> Caller | Refusal:
    said = {"path": "/state", "host": "localhost:9460", "peer": HERE, "secure": False, **more}
    known = said.pop("known", KNOWN)
    return door.decide(Knock(method, authorization=authorization, **said), known, {"gpu07"})


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({}, door.TOKEN),
        ({"authorization": f"Bearer {READS}"}, READ),
        ({"authorization": f"bearer  {READS} "}, READ),
        ({"authorization": basic(READS)}, READ),
        ({"authorization": basic(ACTS)}, ACT),
        ({"authorization": f"Bearer {READS}x"}, door.TOKEN),
        ({"authorization": READS}, door.TOKEN),
        ({"authorization": "Basic rubbish!"}, door.TOKEN),
        ({"authorization": "Bearer \udcff\udcfe"}, door.TOKEN),  # bytes that are no UTF-8
        ({"authorization": "Bearer "}, door.TOKEN),
        ({"path": "/healthz"}, READ),
        ({"path": "/healthz", "authorization": "Bearer wrong"}, door.TOKEN),
        ({"path": "/healthz", "method": "POST"}, door.TOKEN),
        ({"method": "POST", "authorization": f"Bearer {READS}"}, door.ROLE),
        ({"method": "POST", "authorization": f"Bearer {ACTS}"}, ACT),
        ({"method": "POST", "authorization": basic(ACTS)}, door.ROLE),  # another site can have a browser send this
        ({"method": "POST", "authorization": f"Bearer {ACTS}", "peer": "10.0.0.9"}, door.PLAIN),
        ({"method": "POST", "authorization": f"Bearer {ACTS}", "peer": "10.0.0.9", "secure": True}, ACT),
        ({"method": "DELETE", "authorization": f"Bearer {READS}"}, door.ROLE),
        ({"known": ()}, READ),
        ({"known": (), "method": "POST"}, door.ROLE),
        ({"known": (), "host": "evil.example"}, door.HOST),
    ],
)
def test_who_comes_in(given: dict[str, Any], outcome: str) -> None:
    found = knock(**given)
    assert (found.what if isinstance(found, Refusal) else found.role) == outcome


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("localhost", True), ("LOCALHOST:1", True), ("127.0.0.1:9460", True), ("[::1]:9460", True),
        ("gpu07:9460", True), ("GPU07.", True), ("10.1.2.3", True), ("evil.example:9460", False),
        ("gpu07.evil.example", False), ("", False),
        ("localhost.evil.example", False), ("127.0.0.1.evil.example", False), ("[::1].evil.example", True),
    ],
)  # fmt: skip
def test_a_page_that_calls_itself_by_our_address_is_not_answered(host: str, ours: bool) -> None:
    """DNS rebinding: a browser says the name of the page that it shows. (No browser says the last one.)"""
    assert isinstance(knock(known=(), host=host), Caller) is ours


@pytest.mark.parametrize(
    "lines", [[], ["# nothing"], ["read ann short"], ["root ann 0123456789abcdef"], ["act 0123456789abcdef"]]
)
def test_what_is_no_file_of_tokens_is_said_without_repeating_it(lines: list[str]) -> None:
    with pytest.raises(door.BadTokens) as raised:
        door.callers(lines)
    assert "0123456789abcdef" not in str(raised.value)


@pytest.mark.parametrize("part", ["agent", "monitor"])
def test_beyond_this_machine_takes_a_token_or_tls(part: str) -> None:
    for listen in ("0.0.0.0:9", ":9", "[::]:9", "gpu07:9"):
        with pytest.raises(BadSettings, match=rf"{part}\.listen beyond this machine needs http\.tokens_file"):
            parse({part: {"listen": listen}})
        parse({part: {"listen": listen}, "http": {"tokens_file": "t"}})
        parse({part: {"listen": listen}, "http": {"cert_file": "c", "key_file": "k"}})
    parse({part: {"listen": "[::1]:9"}})


class Served:
    """The monitor's server with a door, and acts that only say what they were asked."""

    def __init__(self, settings: HttpSettings) -> None:
        self.said: list[str] = []
        self.asked: list[tuple[Ask, str]] = []
        self.door = open_door(settings, self.said)
        self.acts = Acts(self._act, system())
        self.pages = Pages(
            state=lambda: {"a": 1}, alive=str, ready=lambda: "secret-endpoint", registry=CollectorRegistry(),
            door=self.door, page=self.acts.routes(),
        )  # fmt: skip

    async def _act(self, ask: Ask, author: str) -> str:
        if ask.node == "none":
            raise NotDone("no such node")
        if ask.node == "bug":
            raise RuntimeError("a bug")
        self.asked.append((ask, author))
        return "done so"


@asynccontextmanager
async def serving(
    tmp_path: Path, *, connections: Connections | None = None, **more: Any
) -> AsyncIterator[tuple[Served, str]]:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"read prometheus {READS}\nact ann {ACTS}\n")
    tokens.chmod(0o600)
    made = Served(HttpSettings(**{"tokens_file": str(tokens), **more}))
    if connections is not None:
        made.door.connections = connections
    url = await made.pages.start("127.0.0.1:0")
    try:
        yield made, url
    finally:
        await made.pages.stop()


async def ask(url: str, token: str = "", **options: Any) -> tuple[int, str]:
    headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **options.pop("headers", {})}
    method = "POST" if "json" in options or "data" in options else "GET"
    async with aiohttp.ClientSession() as session, session.request(method, url, headers=headers, **options) as answer:
        return answer.status, await answer.text()


async def test_refused_is_logged_and_counted_and_the_token_stands_nowhere(tmp_path: Path) -> None:
    async with serving(tmp_path) as (served, url):
        wrong = "wrongwrongwrongwrong"
        assert (await ask(f"{url}/state"))[0] == 401
        assert (await ask(f"{url}/state?token={wrong}", wrong))[0] == 401
        assert await ask(f"{url}/state", READS) == (200, '{"a": 1}')
        assert (await ask(f"{url}/act", READS, json={"do": "arm", "reason": "r"}))[0] == 403
        assert (await ask(f"{url}/state", READS, headers={"Host": "evil.example"}))[0] == 421
        assert {why: n for why, n in served.door.refused.items() if n} == {"token": 2, "role": 1, "host": 1}
        assert len(served.said) == 4
        assert all("127.0.0.1" in line for line in served.said)
        assert not any(secret in line for secret in (wrong, READS, ACTS) for line in served.said)
        assert served.asked == []


async def test_without_a_token_health_is_told_and_no_word_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, url):
        assert await ask(f"{url}/healthz") == (200, "ok\n")
        assert await ask(f"{url}/readyz") == (503, "not ok\n")
        assert await ask(f"{url}/readyz", READS) == (503, "secret-endpoint\n")


async def test_who_may_act_acts_in_his_own_name(tmp_path: Path) -> None:
    async with serving(tmp_path) as (served, url):
        body = {"do": "cordon", "node": "gpu07", "reason": "ECC", "drain": True}
        assert await ask(f"{url}/act", ACTS, json=body) == (200, "done so\n")
        assert served.asked == [(Ask(do="cordon", node="gpu07", reason="ECC", drain=True), "ann")]
        assert (await ask(f"{url}/act", ACTS, json={**body, "author": "root"}))[0] == 400
        assert await ask(f"{url}/act", ACTS, json={**body, "node": "none"}) == (409, "no such node\n")
        assert (await ask(f"{url}/act", ACTS, json={**body, "node": "bug"}))[0] == 500
        assert (await ask(f"{url}/act", ACTS, data="x" * 10))[0] == 415
        assert (await ask(f"{url}/act", ACTS, json={**body, "reason": "x" * 5000}))[0] == 413
        counts = {key: n for key, n in served.acts.counts.items() if n}
        assert counts == {("cordon", "done"): 1, ("cordon", "refused"): 1, ("cordon", "failed"): 1}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b'{"do":"rm","reason":"r"}', b'{"do":"cordon","reason":"r"}', b'{"do":"pause","reason":"r"}',
        b'{"do":"arm","node":"n","reason":"r"}', b'{"do":"arm","reason":""}', b'{"do":"cordon","node":"n"}',
        b'{"do":"pause","run":"r","reason":"r","drain":true}', b"[" * 4000,
    ],
)  # fmt: skip
def test_what_cannot_be_asked(body: bytes) -> None:
    with pytest.raises(Unclear):
        asked_over_http.parse(body)


async def test_who_guesses_is_told_to_wait_and_fills_no_log_and_keeps_nobody_out(tmp_path: Path) -> None:
    async with serving(tmp_path, refused_per_minute=3) as (served, url):
        said = [(await ask(f"{url}/state", f"guess-number-{n:06d}"))[0] for n in range(6)]
        assert said == [401, 401, 401, 429, 429, 429]
        assert len(served.said) == 3
        assert served.door.refused["token"] == 6
        assert (await ask(f"{url}/state", READS))[0] == 200


async def test_one_address_cannot_ask_without_end(tmp_path: Path) -> None:
    async with serving(tmp_path, per_minute=60) as (served, url):
        said = [(await ask(f"{url}/state", READS))[0] for _ in range(70)]
        assert said[:60] == [200] * 60
        assert 429 in said
        assert served.door.refused["rate"] == said.count(429)


async def test_tokens_and_certificates_are_changed_without_a_restart(tmp_path: Path) -> None:
    authority, later = Authority(tmp_path, "ours"), Authority(tmp_path, "later")
    cert, key = authority.issue("monitor")
    async with serving(tmp_path, cert_file=cert, key_file=key) as (served, url):
        trust = {one.ca_file: ssl.create_default_context(cafile=one.ca_file) for one in (authority, later)}
        local = url.replace(url.split("//")[1].split(":")[0], "127.0.0.1")
        assert url.startswith("https://")
        assert (await ask(f"{local}/state", READS, ssl=trust[authority.ca_file]))[0] == 200
        (tmp_path / "tokens").write_text("rubbish\n")
        fresh = "freshfreshfreshfresh"

        async def answered(token: str, status: int) -> bool:
            return (await ask(f"{local}/state", token, ssl=trust[authority.ca_file]))[0] == status

        async def complained() -> bool:
            return await answered(READS, 200) and any("in force" in line for line in served.said)

        await eventually(complained, what="a word about a file that cannot serve")
        (tmp_path / "tokens").write_text(f"read prometheus {fresh}\n")
        await eventually(lambda: answered(fresh, 200), what="the new token is taken")
        old = (await ask(f"{local}/state", READS, ssl=trust[authority.ca_file]))[0]
        assert old in (401, 429), "not any more; 429 where the new one was asked for too often before it was in force"
        for source, goal in zip(later.issue("monitor"), (cert, key), strict=True):
            Path(goal).write_bytes(Path(source).read_bytes())
        served.door.certificates.look()
        assert (await ask(f"{local}/state", fresh, ssl=trust[later.ca_file]))[0] == 200


def test_a_token_that_is_taken_away_is_gone_though_the_file_could_not_be_read_for_a_while(tmp_path: Path) -> None:
    tokens, now, said = tmp_path / "tokens", [0.0], []
    tokens.write_text(f"read ann {READS}\nact bob {ACTS}\n")
    held = Callers(str(tokens), lambda level, text: said.append(text), lambda: now[0])
    tokens.write_text(f"read ann {READS}\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        for now[0] in (2.0, 4.0):
            assert len(held.get()) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(said) == 1
    now[0] = 6.0
    assert [one.name for one in held.get()] == ["ann"]


async def raw(url: str, *said: bytes) -> bytes:
    """What a connection of somebody who speaks no good HTTP ends with."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    try:
        for part in said:
            writer.write(part)
        async with asyncio.timeout(10.0):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_what_is_no_http_is_answered_and_fills_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path) as (served, url):
        with caplog.at_level(logging.DEBUG):
            assert b" 400 " in await raw(url, f"GET / HTTP/1.1\r\nAuthorization: Bearer {READS}\0\r\n\r\n".encode())
            assert b" 400 " in await raw(url, b"GET http://[::1/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 401 " in await raw(
                url, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer \xff\r\n\r\n"
            )
        assert served.door.refused["token"] == 1
        assert not [one for one in caplog.records if one.exc_info]
        assert READS not in caplog.text


async def test_who_keeps_connections_without_coming_in_keeps_nobody_out(tmp_path: Path) -> None:
    async with serving(tmp_path, connections=Connections(most=4, wait_s=1.0)) as (served, url):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(f"GET /state HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READS}\r\n\r\n".encode())
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        idle = [asyncio.create_task(raw(url, b"GET /healthz HTTP/1.1\r\n")) for _ in range(8)]
        await eventually(lambda: sum(one.done() for one in idle) >= 5, what="the eldest have gone")
        assert len(served.door.connections) == 4
        assert (await ask(f"{url}/state", READS))[0] == 200
        assert await asyncio.gather(*idle) == [b""] * 8, "and the rest, once their time is over"
        assert not reader.at_eof(), "who was let in is not sent away for them"
        writer.close()


def test_as_many_tokens_as_may_be_fit(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"read person{number} {number:064x}\n" for number in range(door.CALLERS_MAX)))
    assert len(Callers(str(tokens), lambda *_: None).get()) == door.CALLERS_MAX


def test_files_that_cannot_serve_are_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("rubbish")
    with pytest.raises(StoreError, match=r"http\.tokens_file"):
        Callers(str(tmp_path / "f"), lambda *_: None)
    with pytest.raises(OSError, match="PEM"):
        Certificates(str(tmp_path / "f"), str(tmp_path / "f"), lambda *_: None)
    with pytest.raises(StoreError):
        Door(HttpSettings(tokens_file=str(tmp_path / "none")), lambda *_: None)


def test_many_addresses_cost_a_bounded_memory() -> None:
    kept = Buckets(1)
    assert all(kept.one_more(str(n), 0.0) for n in range(5000))
    assert not kept.one_more("4999", 0.0)
    assert kept.one_more("0", 0.0), "long forgotten"
