"""`rankpulse report`: written from files and from a store; names stay data; HTML needs nothing from anywhere."""

import asyncio
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_world import DAY_S, DAYS, ENTRIES, T0
from typer.testing import CliRunner, Result

from rankpulse.cli import report_svg
from rankpulse.cli.main import app
from rankpulse.cli.report_blocks import Bar, Bars, Range, Ranges, Stack, Stacks
from rankpulse.cli.report_md import harmless
from rankpulse.core import codec, ledger_lines
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.ledger import day_of
from rankpulse.core.settings import parse
from rankpulse.store.etcd import open_store


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"".join(ledger_lines.written(one) for one in (*DAYS, *ENTRIES)))
    return path


def run(*args: str) -> Result:
    return CliRunner().invoke(app, ["report", *args], env={"RANKPULSE_CONFIG": "", "RANKPULSE_CLUSTER": "prod"})


def test_markdown_from_a_file_needs_no_store(exported: Path) -> None:
    found = run("--from", str(exported))
    assert found.exit_code == 0, found.stderr
    for part in (
        "# Reliability of prod", "| failures | 6 |", "| gpu | 5 |", "| node_dead | node | 1 |", "| stop |",
        "| n3 | 5 |", "| LEMON |", "| n3/1 | 5 |", "i0001-0003", "No sign that the failure rate changed",
        "no monitor saw",
    ):  # fmt: skip
        assert part in found.stdout, found.stdout


def test_names_stay_data_in_markdown(exported: Path) -> None:
    text = run("--from", str(exported)).stdout
    assert "\x1b" not in text
    assert "<" not in text
    assert "`" not in text
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) > 5
    for lines in tables:
        assert len({line.count("|") for line in lines}) == 1, lines


def test_what_means_something_to_markdown_is_taken_that_meaning() -> None:
    assert harmless("a_b worker_dead 10 % (x)") == "a_b worker_dead 10 % (x)"
    assert not set("[]*<>|`\\") & set(harmless("[a](b) *c* _d_ <e> | `f` \\"))
    assert "_" not in harmless("_d_ __x__")


class Page(HTMLParser):
    """What is in it, and that every tag is closed where it should be."""

    VOID = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_one_file_that_loads_nothing_and_runs_nothing(exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "week.html"
    found = run("--from", str(exported), "--out", str(out))
    assert (found.exit_code, found.stdout) == (0, ""), found.stderr
    text = out.read_text()
    page = Page(text)
    assert not page.seen & {"script", "b", "link", "img", "iframe", "object"}
    assert not page.attributes & {"src", "href", "onload", "onclick"}
    assert "http" not in text.replace("http-equiv", "")
    assert "\x1b" not in text
    assert "LEMON" in page.text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 4
    for drawing in drawings:
        ET.fromstring(drawing)


def test_the_form_is_taken_from_the_name_unless_it_is_said(exported: Path, tmp_path: Path) -> None:
    for name, args, begin in (
        ("a.html", (), "<!doctype html>"), ("a.md", (), "# "), ("a", ("--format", "html"), "<!doctype html>"),
        ("b.html", ("--format", "md"), "# "),
    ):  # fmt: skip
        out = tmp_path / name
        assert run("--from", str(exported), "--out", str(out), *args).exit_code == 0
        assert out.read_text().startswith(begin)


def test_a_span_is_in_whole_days_and_ends_where_the_files_end(exported: Path) -> None:
    assert "| failures | 1 |" in run("--from", str(exported), "--since", "2d").stdout
    everything = run("--from", str(exported), "--since", "").stdout
    assert "| failures | 6 |" in everything
    assert f"From {day_of(T0)} 00:00:00 UTC to {day_of(T0 + 8 * DAY_S)} 00:00:00 UTC" in everything


def test_lines_that_are_none_are_told_and_the_rest_is_reported(exported: Path) -> None:
    with exported.open("ab") as file:
        file.write(b'{"ledger":"entry","id":"x')
    found = run("--from", str(exported))
    assert (found.exit_code, "refused: " in found.stderr, "| failures | 6 |" in found.stdout) == (1, True, True)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--format", "pdf"), "choose one of md, html"),
        (("--since", "week"), "give a number and h, d or w"),
        (("--from", "/nowhere.jsonl"), "name a file of `ledger export`"),
        (("--store", "127.0.0.1:1"), "127.0.0.1:1"),
    ],
)
def test_wrong_use_is_said(args: tuple[str, ...], words: str) -> None:
    found = run(*args)
    assert (found.exit_code, words in found.stderr, found.stdout) == (2, True, ""), found.stderr


def test_a_file_without_a_ledger_and_a_place_that_takes_none_are_said(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert "holds no incident" in run("--from", str(tmp_path / "empty.jsonl")).stderr
    assert "cannot be written" in run("--from", str(exported), "--out", str(tmp_path / "no" / "x.md")).stderr


def numbers(drawing: str, name: str) -> list[float]:
    return [float(one.attrib[name]) for one in ET.fromstring(drawing).iter("rect")]


def test_marks_are_as_long_as_what_they_stand_for() -> None:
    drawing = report_svg.bars(Bars("t", [Bar("a", 2.0, "2"), Bar("b", 1.0, "1"), Bar("c", 0.0, "0")]))
    first, second, none = numbers(drawing, "width")
    assert first == pytest.approx(2 * second)
    assert none <= 1
    stacked = report_svg.stacks(Stacks("t", [Stack("d1", {"x": 1, "y": 3}), Stack("d2", {"x": 2})], ("x", "y")))
    tall = numbers(stacked, "height")[:3]
    assert tall == pytest.approx([tall[0], 3 * tall[0], 2 * tall[0]], abs=0.2)
    ET.fromstring(report_svg.stacks(Stacks("nothing", [], ())))
    ET.fromstring(report_svg.bars(Bars("nothing", [])))
    inf = float("inf")
    ET.fromstring(report_svg.ranges(Ranges("t", [Range("none failed", inf, 5.0, inf, "-"), Range("-", 0, 0, 0, "-")])))


@pytest.mark.live
def test_from_a_store_with_what_is_open_and_what_is_advised(etcd: str, cluster: str) -> None:
    keys = Keys(cluster)
    still = r.Incident(
        id="i0002-0001", klass="node_dead", state="open", opened_at=T0, run_uid="u1", run_id="llama",
        summary="n5 is gone", lost_s={"diagnosis": 7200.0},
    )  # fmt: skip
    advice = r.RunAdvice(
        run_uid="u1", at=T0, interval_s=1800.0, low_s=1200.0, high_s=2700.0, mtbf_s=36000.0, mtbf_low_s=18000.0,
        mtbf_high_s=72000.0, save_s=45.0, saves=9, recover_s=120.0, failures=3, lost_share=0.05, why="x",
    )  # fmt: skip

    async def put() -> None:
        store = await open_store(parse({"store": {"endpoints": [etcd]}}).store)
        for key, one in (
            *((ledger_lines.key_of(keys, one), one) for one in (*DAYS, *ENTRIES)),
            (keys.incident(still.id), still),
            (keys.advice("u1"), advice),
        ):
            await store.put(key, codec.encode(one))
        await store.close()

    asyncio.run(put())
    found = run("--since", "", "--store", etcd, "--cluster", cluster)
    assert found.exit_code == 0, found.stderr
    for part in ("| failures | 6 |", "OPEN, so far", "n5 is gone", "2.0 h of its run", "| 30 min | 20 min to 45 min |"):
        assert part in found.stdout, found.stdout
