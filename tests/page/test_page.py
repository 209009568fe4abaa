"""The page without a browser: well-formed, everything told, nobody's words markup, and what a reader is sent."""

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import html5lib
import msgspec
import pytest
from doors import open_door
from page_bench import UTC
from prometheus_client import CollectorRegistry
from scene import Fleet, all_standings, fleet
from support import eventually, work
from yarl import URL

from rankpulse.core import events as ev
from rankpulse.core import node_standing as ns
from rankpulse.core import records as r
from rankpulse.core.glance import Glance, Rack, glance
from rankpulse.core.node_standing import Standings
from rankpulse.core.settings import BadSettings, HttpSettings, parse
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.http import Pages
from rankpulse.monitor.page import detail, serve
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.board import Board, Piece
from rankpulse.monitor.page.html import Html, el, text
from rankpulse.monitor.page.serve import OnCall
from rankpulse.monitor.page.views import Views
from rankpulse.web.door import Door

ABOUT = About("mon-a", "1", leads=True)
EVIL = "</title><script>alert(1)</script>\"'&\u202e\x00"


def complain(part: str, error: Exception) -> None:
    raise AssertionError(part) from error


def shown(world: Fleet, path: str = "/", **about: Any) -> str:
    """All pieces of a page."""
    told = glance(world.engine, world.now, UTC + world.now, Standings())
    pieces, _ = Views(world.engine, complain).pieces(path, told, ABOUT._replace(**about))
    return "".join(piece.html for piece in pieces if not piece.within)


def words(markup: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", markup))


@pytest.fixture(scope="module")
def night() -> Fleet:
    return all_standings()


class Served:
    def __init__(self, world: Fleet, door: Door | None = None, **about: Any) -> None:
        self.world, self.url = world, ""
        clock = Clock(now=lambda: world.now, utc=lambda: UTC + world.now)
        self.page = OnCall(world.engine, lambda: ABOUT._replace(**about), clock, "life")
        made: dict[str, Any] = {
            "registry": CollectorRegistry(),
            "page": self.page.routes(),
            "door": door or open_door(),
        }
        self.pages = Pages(state=dict, alive=str, ready=str, **made)
        self.session = aiohttp.ClientSession()

    async def get(self, path: str, **options: Any) -> tuple[aiohttp.ClientResponse, str]:
        async with self.session.get(self.url + path, **options) as answer:
            return answer, await answer.text()


@pytest.fixture
async def site() -> AsyncIterator[Served]:
    made = Served(fleet())
    made.url = await made.pages.start("127.0.0.1:0")
    yield made
    await made.session.close()
    await made.pages.stop()


def test_text_is_escaped_once_whoever_it_is_from() -> None:
    assert text(EVIL) == "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;\ufffd\ufffd"
    assert el("a", EVIL, Html("<b>ours</b>"), href=EVIL) == f'<a href="{text(EVIL)}">{text(EVIL)}<b>ours</b></a>'
    assert el("p", None, ["a", ["b"]], hidden=True, id=None, class_="x") == '<p hidden class="x">ab</p>'
    assert len(text("x" * 100_000)) < 10_000


def test_every_page_is_valid_html_and_names_no_id_twice(night: Fleet) -> None:
    incident = night.incidents()[0].id
    for path in ("/", f"/incidents/{incident}", "/nodes/c02", "/nodes/b03", "/runs/moe-7c", "/nodes/none", "/what"):
        markup = f"<!doctype html><html lang=en><head><title>x</title></head><body>{shown(night, path)}</body></html>"
        html5lib.HTMLParser(strict=True).parse(markup)
        ids = re.findall(r' id="([^"]*)"', markup)
        assert len(ids) == len(set(ids)), path


def test_the_worst_that_is_true_of_a_node_is_drawn(night: Fleet) -> None:
    told = glance(night.engine, night.now, 0.0, Standings())
    states = {node.node: node.state for node in told.nodes()}
    assert set(states.values()) == set(ns.STANDINGS)
    assert states["c02"] == ns.BROKEN, "it is draining as well"
    assert [source.name for source in told.sources] == ["gpu"]
    silent = {node.node for node in told.nodes() if node.state in (ns.LOST, ns.SUSPECTED, ns.LATE)}
    assert silent == {"b03", "c05", "d06", "d07"}


def test_what_needs_a_person_comes_first_and_what_is_planned_last(night: Fleet) -> None:
    told = words(shown(night))
    order = [told.index(part) for part in ("needs a person", "rankpulse is acting", "planned, or expected to pass")]
    assert order == sorted(order)
    assert told.count("needs a person ") >= 3
    assert "Then: rankpulse cordon b05 --drain" in told


@pytest.mark.parametrize(
    ("about", "parts"),
    [
        ({"trouble": "the store is silent"}, ("BLIND: this monitor concludes nothing", "NO: the store is silent")),
        ({"leads": False}, ("STANDBY: this monitor decides nothing; mon-b leads", "this monitor decides nothing")),
        ({"alarms": ("NOSPACE",)}, ("ALARM NOSPACE",)),
        ({"store_error": "timeout"}, ("does not answer: timeout",)),
        ({"lag_s": 3.0}, ("turns late",)),
        ({"runbooks": "https://wiki/r/"}, ("runbook RankpulseGpuFault",)),
    ],
)
def test_its_own_sight_is_told(night: Fleet, about: dict[str, Any], parts: tuple[str, ...]) -> None:
    leader = r.Leader(monitor="mon-b", epoch=1, at=0.0, url="http://10.0.0.9:9460")
    night.put(night.keys.leader(), leader)
    markup = shown(night, **about)
    for part in parts:
        assert part in words(markup)
    assert ('href="http://10.0.0.9:9460"' in markup) == ("leads" in about), "the way to who decides"


def test_a_leaders_address_that_is_no_page_is_no_link() -> None:
    world = fleet()
    world.put(world.keys.leader(), r.Leader(monitor="mon-b", epoch=1, at=0.0, url="javascript:alert(1)"))
    assert "javascript" not in shown(world, leads=False)


def test_what_was_not_done_is_told_with_its_reason() -> None:
    world = fleet()
    world.put(world.keys.arm(), r.Arm(armed=False, author="ann", reason="switches", at=0.0))
    world.put(world.keys.breaker(), r.Breaker(open=True, author="m", reason="9 of 10 nodes silent", at=0.0))
    world.put(
        world.keys.run_mode("moe-7c"), r.RunMode(run_uid="moe-7c", mode="paused", author="bo", reason="x", at=0.0)
    )
    told = words(shown(world))
    for part in (
        "The breaker is open: nothing is ordered", "the breaker is open: 9 of 10 nodes silent", "it is not armed",
        "observes only, no restart is ordered (by ann: switches)", "OBSERVES ONLY: rankpulse orders no restart",
    ):  # fmt: skip
        assert part in told, told
    world.put(world.keys.breaker(), r.Breaker(open=False, author="m", reason="", at=0.0))
    assert "leaves run moe-8x7b alone : it is paused by a person" in words(shown(world))


def test_an_update_draws_only_what_changed(night: Fleet) -> None:
    """By work, not by time: a fleet that stays as it is costs little more than looking at it."""
    standings, views, board = Standings(), Views(night.engine, complain), Board("life")

    def update() -> None:
        told = glance(night.engine, night.now, 0.0, standings)
        board.update(views.pieces("/", told, ABOUT)[0])

    first = work(update)
    mark = board.mark
    again = work(update)
    assert board.since(mark) == {}
    assert again < first * 0.75
    night.put(night.keys.cordon("a03"), r.Cordon(node="a03", author="ann", reason="x", at=0.0))
    update()
    changed = set(board.since(mark))
    assert {"rack-rack-a", "notable", "sight"} <= changed
    assert not {"rack-rack-b", "fleet", "runs", "incidents"} & changed


def test_a_reader_is_sent_what_it_has_not_seen() -> None:
    board = Board("life")
    board.update([Piece("a", Html("<p>1</p>")), Piece("b", Html("<p>1</p>"))])
    seen = board.mark
    assert board.since(seen) == {}
    board.update([Piece("a", Html("<p>2</p>")), Piece("b", Html("<p>1</p>"))])
    board.update([Piece("a", Html("<p>3</p>")), Piece("b", Html("<p>1</p>"))])
    assert board.since(seen) == {"a": "<p>3</p>"}, "the newest alone"
    for foreign in ("", "other-2", "life-x", f"life-{'9' * 99}", "life--1"):
        assert set(board.since(foreign)) == {"a", "b"}, foreign
    board.update([Piece("a", Html("<p>3</p>"), same="x"), Piece("c", Html("<i>1</i>"), within="a")])
    mark = board.mark
    board.update([Piece("a", Html("<p>4</p>"), same="x"), Piece("c", Html("<i>2</i>"), within="a")])
    assert board.since(mark) == {"c": "<i>2</i>"}, "what holds others is not sent because of one"


async def test_pages_are_locked_down_and_change_nothing(site: Served) -> None:
    for path, status in (("/", 200), ("/nodes/a01", 200), ("/nodes/zz", 404), ("/static/page.css", 200)):
        answer, _ = await site.get(path)
        assert answer.status == status
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        told = {name: answer.headers[name] for name in ("X-Content-Type-Options", "Referrer-Policy", "Cache-Control")}
        assert told == {
            "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"
        }  # fmt: skip
    _, markup = await site.get("/")
    assert not re.search(r" (style|on\w+)=", markup)
    assert re.findall(r"<script[^>]*>(.*?)</script>", markup) == [""]
    async with site.session.post(site.url + "/nodes/a01", data={"cordon": "1"}) as answer:
        assert answer.status == 403
        assert "rankpulse restart, pause" in await answer.text()


async def test_names_are_found_and_what_is_not_there_is_told(site: Served) -> None:
    answer, markup = await site.get("/nodes?name=a01")
    assert answer.url.path == "/nodes/a01"
    _, markup = await site.get("/nodes?name=A0")
    assert "8 nodes with &#x27;A0&#x27;" in markup
    answer, markup = await site.get("/nodes/%3Cscript%3E")
    assert (answer.status, "&lt;script&gt;" in markup, "<script>" in markup) == (404, True, False)
    assert "once its agent has written a beat" in markup
    answer, _ = await site.get("/static/../http.py")
    assert answer.status == 404


async def read(answer: aiohttp.ClientResponse, kind: str) -> dict[str, Any]:
    """The next event of this kind."""
    async with asyncio.timeout(10):
        while True:
            block = (await answer.content.readuntil(b"\n\n")).decode()
            if block.startswith(f"event: {kind}\n"):
                return {
                    **json.loads(block.split("data: ", 1)[1]),
                    "id": (re.findall(r"^id: (.+)$", block, re.M) or [""])[0],
                }


async def test_the_stream_tells_what_is_new_and_goes_on_where_it_broke_off(site: Served) -> None:
    _, markup = await site.get("/")
    mark = re.search(r'data-mark="([^"]+)"', markup)[1]  # type: ignore[index]
    async with site.session.get(f"{site.url}/events?view=/&since={mark}") as stream:
        await read(stream, "beat")
        site.world.put(site.world.keys.cordon("a02"), r.Cordon(node="a02", author="ann", reason="fan", at=0.0))
        news = await read(stream, "news")
        assert "cordoned by ann: fan" in news["parts"]["notable"]
        assert news["look"] == site.page.look
    site.world.put(site.world.keys.cordon("a03"), r.Cordon(node="a03", author="ann", reason="belt", at=0.0))
    headers = {"Last-Event-ID": news["id"]}
    async with site.session.get(f"{site.url}/events?view=/&since={mark}", headers=headers) as stream:
        assert "cordoned by ann: belt" in (await read(stream, "news"))["parts"]["notable"]


async def test_readers_are_few_and_one_that_is_too_many_is_told(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "WATCHERS_MAX", 1)
    async with site.session.get(f"{site.url}/events?view=/") as stream:
        await read(stream, "news")
        answer, said = await site.get("/events?view=/")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "10")
        assert "watched live already" in said

    async def free() -> bool:
        async with site.session.get(f"{site.url}/events?view=/") as stream:
            return stream.status == 200

    await eventually(free, 10, "room for another")


async def test_a_stream_ends_with_the_token_that_opened_it(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"read ann {'a' * 16}\nread bob {'b' * 16}\n")
    made = Served(fleet(), open_door(HttpSettings(tokens_file=str(tokens))))
    made.url = await made.pages.start("127.0.0.1:0")
    ann, bob = ({"Authorization": f"Bearer {letter * 16}"} for letter in "ab")
    try:
        async with (
            made.session.get(f"{made.url}/events?view=/", headers=ann) as hers,
            made.session.get(f"{made.url}/events?view=/", headers=bob) as his,
        ):
            await read(hers, "news")
            await read(his, "news")
            tokens.write_text(f"read bob {'b' * 16}\n")
            await eventually(lambda: made.page.watchers == 1, 10, "that hers ends")
            await read(his, "beat")
    finally:
        await made.session.close()
        await made.pages.stop()


async def test_a_reader_that_takes_nothing_is_let_go(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "TAKE_S", 0.2)
    monkeypatch.setattr(serve, "EVERY_S", 0.01)
    fat = Piece("x", Html("x" * 4_000_000))
    monkeypatch.setattr(Board, "since", lambda self, mark: {fat.id: fat.html})
    host, port = site.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(b"GET /events?view=/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await eventually(lambda: site.page.watchers == 1, 10, "the reader")
    await eventually(lambda: site.page.watchers == 0, 10, "that it is let go")
    writer.close()


async def test_a_page_that_fails_leaves_the_stream_alive(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    async with site.session.get(f"{site.url}/events?view=/") as stream:
        await read(stream, "news")
        monkeypatch.setattr(serve, "glance", fails)
        monkeypatch.setattr(serve, "BEAT_S", 0.1)
        await read(stream, "beat")
    site.page._glance = None
    answer, said = await site.get("/runs/llama-1f")
    assert (answer.status, "a bug in rankpulse" in said) == (500, True)


async def test_a_page_that_was_let_go_is_sent_whole_to_who_still_reads_it(site: Served) -> None:
    board, _ = site.page.board("/")
    seen = board.mark
    site.page._boards.clear()
    again, _ = site.page.board("/")
    assert set(again.since(seen)) >= {"verdict", "runs", "fleet"}


async def test_who_waits_for_a_node_sees_it_come(site: Served) -> None:
    async with site.session.get(f"{site.url}/events?view=/nodes/new1") as stream:
        assert "No node" in (await read(stream, "news"))["parts"]["main-piece"]
        site.world.put(site.world.keys.cordon("new1"), r.Cordon(node="new1", author="ann", reason="soon", at=0.0))
        assert "soon" in (await read(stream, "news"))["parts"]["main-piece"]


def test_a_node_of_which_only_a_cordon_tells_is_on_the_map() -> None:
    world = fleet()
    world.put(world.keys.cordon("ghost"), r.Cordon(node="ghost", author="ann", reason="x", at=0.0))
    assert "no agent of it was heard; cordoned by ann: x" in words(shown(world))
    world.engine.step(ev.Gone(world.keys.cordon("ghost"), world.revision + 1, world.now))
    assert "ghost" not in words(shown(world))


@pytest.mark.parametrize("name", ["grafana_url", "runbooks_url"])
def test_links_lead_to_pages(name: str) -> None:
    assert getattr(parse({"monitor": {name: "https://x/y"}}).monitor, name) == "https://x/y"
    with pytest.raises(BadSettings, match=f"monitor.{name}"):
        parse({"monitor": {name: "javascript:alert(1)"}})


def test_what_comes_with_the_program_is_there() -> None:
    engine = fleet().engine
    made = OnCall(engine, lambda: ABOUT, Clock(now=float, utc=float), "life")
    assert re.fullmatch(r"[0-9a-f]{12}", made.look)
    assert msgspec.json.encode(made.look)


def broken(told: Glance, what: str) -> Glance:
    """As a bug would have it: values that no code expects."""
    if what == "card":
        bad = msgspec.structs.replace(told.open[2], confidence="high")
        return replace(told, open=(*told.open[:2], bad, *told.open[3:]))
    if what == "runs":
        return replace(told, runs={**told.runs, "x": {"outcome": "running"}})
    bad_node = told.racks[1].nodes[0]._replace(state="?")
    return replace(told, racks=(told.racks[0], Rack("rack-b", (bad_node,)), *told.racks[2:]))


@pytest.mark.parametrize(("what", "lacks"), [("card", "incidents"), ("runs", "runs"), ("rack", "rack-rack-b")])
def test_a_part_that_cannot_be_made_says_so_and_the_others_stand(night: Fleet, what: str, lacks: str) -> None:
    told, failed = glance(night.engine, night.now, UTC + night.now, Standings()), list[str]()
    views = Views(night.engine, lambda part, error: failed.append(part))
    whole = {piece.id: piece.html for piece in Views(night.engine, complain).pieces("/", told, ABOUT)[0]}
    pieces = {piece.id: piece.html for piece in views.pieces("/", broken(told, what), ABOUT)[0]}
    assert pieces.keys() == whole.keys()
    assert all(f'id="{id_}"' in html for id_, html in pieces.items() if id_ != "main-piece")
    assert f"This part ({failed[0]}) cannot be shown: a bug in rankpulse" in pieces[lacks]
    if what == "card":
        assert failed == [f"i-{told.open[2].id}"]
        assert pieces[lacks].count("cannot be shown") == 1
        assert all(f'id="i-{i.id}"' in pieces[lacks] for i in told.open)
    assert pieces["closed"] == whole["closed"]
    assert (pieces["incidents"] == whole["incidents"]) == (what != "card")


async def test_a_stream_whose_page_cannot_be_made_does_not_pass_for_live(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    async with site.session.get(f"{site.url}/events?view=/") as stream:
        await read(stream, "news")
        with monkeypatch.context() as patch:
            patch.setattr(serve, "glance", fails)
            told = await read(stream, "news")
            assert list(told["parts"]) == ["verdict"]
            assert "This page cannot be made" in told["parts"]["verdict"]
        back = await read(stream, "news")
        assert {"verdict", "incidents", "runs", "fleet"} <= back["parts"].keys(), "all of it, once it can be made again"


async def test_what_was_searched_for_stays_on_a_page_that_is_live(site: Served) -> None:
    _, markup = await site.get("/nodes?name=A0")
    view = html.unescape(re.search(r'data-view="([^"]+)"', markup)[1])  # type: ignore[index]
    async with site.session.get(f"{site.url}/events", params={"view": view}) as stream:
        told = await read(stream, "news")
        assert "8 nodes with" in told["parts"]["main-piece"]
        site.world.put(site.world.keys.cordon("a09"), r.Cordon(node="a09", author="ann", reason="soon", at=0.0))
        assert "9 nodes with" in (await read(stream, "news"))["parts"]["main-piece"]
    kept = set(site.page._boards)
    for n in range(5):
        await site.get(f"/nodes?name=x{n}")
    assert set(site.page._boards) == kept, "asking drives out nothing"


def test_a_search_that_finds_too_many_is_cut(night: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detail, "FOUND", 3)
    told = words(shown(night, "/nodes?name=a0"))
    assert "8 nodes with" in told
    assert "and 5 more nodes: say more of the name" in told
    assert "a03" in told
    assert "a04" not in told


async def test_whatever_is_asked_for_gets_an_answer_that_helps(site: Served) -> None:
    for path in ("/foo", "/state/x", "/incidents/%2e%2e", "/nodes/%00", "/runs/%ed%a0%80", "/nodes/" + "a" * 3000):
        async with site.session.get(URL(site.url + path, encoded=True)) as answer:
            markup = await answer.text()
        assert (answer.status, answer.content_type) == (404, "text/html"), path
        assert "the overview" in markup, path
    async with site.session.head(f"{site.url}/events?view=/") as answer:
        assert answer.status == 405, "nothing would ever come of it"
    async with site.session.head(f"{site.url}/") as answer:
        assert answer.status == 200


def test_headings_step_down_one_by_one(night: Fleet) -> None:
    incident = night.incidents()[0].id
    for path in ("/", f"/incidents/{incident}", "/nodes/c02", "/runs/moe-7c", "/nodes?name=a", "/what"):
        levels = [int(level) for level in re.findall(r"<h(\d)", shown(night, path))]
        assert levels[0] == 1, path
        assert levels.count(1) == 1, path
        assert all(after <= before + 1 for before, after in pairwise(levels)), path


def test_what_was_done_in_vain_calls_for_a_person_and_what_is_over_is_told_so(night: Fleet) -> None:
    """The last rung of the ladder leaves the action as it was: a page that says 'acting' then would be wrong."""
    told = glance(night.engine, night.now, UTC + night.now, Standings())
    acting = next(i for i in told.open if i.klass == "node_dead")
    tried = msgspec.structs.replace(acting, rung="page")
    over = msgspec.structs.replace(
        acting, id="i0", state="closed", outcome="recovered", action="wait", action_reason="it may pass"
    )

    def at(*open_: r.Incident) -> dict[str, str]:
        odd = replace(told, open=open_, closed=(over,))
        pieces, _ = Views(night.engine, complain).pieces("/", odd, ABOUT)
        return {piece.id: words(piece.html) for piece in pieces}

    assert "rankpulse is acting" in at(acting)["verdict"]
    page = at(tried)
    assert "needs a person: all that rankpulse may do was done, and no round has followed" in page["verdict"]
    assert "did all that it may, in vain, and called a person" in page["undone"]
    assert "nothing yet" not in page["incidents"]
    assert "waited for it to pass (over: recovered)" in page["undone"]
    assert "does nothing yet" not in page["undone"]


def test_a_run_of_which_nothing_is_heard_does_not_pass_for_going_on() -> None:
    """Too many nodes are silent for an incident of its own: its figures are old all the same."""
    world = fleet()
    own = [f"{rack}{number:02}" for rack in "abc" for number in range(1, 9)]
    world.silent.update(own)
    world.machines.update(dict.fromkeys(own, ev.SILENT))
    world.run(20)
    assert not [i for i in world.incidents() if i.run_uid], "or this shows nothing"
    told = shown(world)
    assert "16 nodes of it late or silent" in words(told)
    assert 'aria-label="goes on"' not in told
    detail_of = shown(world, "/runs/llama-1f")
    assert "16 nodes of it late or silent" in words(detail_of)
    assert 'aria-label="not heard of"' in detail_of
    world.silent.clear()
    world.machines.clear()
    world.run(15)
    assert "late or silent" not in words(shown(world, "/runs/llama-1f"))
    assert 'aria-label="goes on"' in shown(world)


def test_racks_of_any_name_have_ids_of_their_own(night: Fleet) -> None:
    told = glance(night.engine, night.now, UTC + night.now, Standings())
    racks = tuple(Rack(name, told.racks[0].nodes[n : n + 1]) for n, name in enumerate(("a b", "a\x00", "a\x01", EVIL)))
    pieces, _ = Views(night.engine, complain).pieces("/", replace(told, racks=racks), ABOUT)
    ids = re.findall(r' id="(rack[^"]*)"', "".join(piece.html for piece in pieces if not piece.within))
    assert len(set(ids)) == 4
    assert not [id_ for id_ in ids if re.search(r"[\s<>&]", id_)]
    assert set(ids) == {piece.id for piece in pieces if piece.within}, "or the script finds none of them"
