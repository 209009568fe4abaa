"""The dashboards as files: what they ask for exists, panels do not overlap, and making them anew changes nothing."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankpulse.core.catalogue import AGENT, GPU, HOST, MONITOR, SHARED, Metric
from rankpulse.dashboards import build, rules
from rankpulse.dashboards.promql import CATALOGUE, OWN, Ask, Unknown, names_of, or_zero, problems, wire_names
from rankpulse.dashboards.shipped import OUT, differing, shipped, write

REPO = Path(__file__).resolve().parents[2]
BOARDS = {board["uid"]: board for board in build.read()}
RECORDED = {record.name: record.labels for record in rules.RECORDS}
RULES = {**{record.name: record.expr for record in rules.RECORDS}, **{alert.name: alert.expr for alert in rules.ALERTS}}

# Metrics that no panel and no rule shows, each with the reason why.
NOT_SHOWN: dict[str, str] = {
    "process_virtual_memory_bytes": "it comes with prometheus-client, and says nothing of what is used",
}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def queries(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(panel, query) of every panel and variable."""
    for panel in panels(board):
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for one in board["annotations"]["list"]:
        yield f"annotation {one['name']}", one["expr"]
    for variable in board["templating"]["list"]:
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        if found:
            yield f"${variable['name']}", f"count by ({found[2]}) ({found[1]})"


ASKED = [(board["uid"], title, expr) for board in BOARDS.values() for title, expr in queries(board)]


def test_making_them_anew_changes_nothing() -> None:
    pytest.importorskip("grafanalib")
    assert differing(OUT, build.built()) == [], "run `make dashboards` and commit what it writes"
    assert build.built().keys() == shipped().keys(), "a file in dashboards/out that nothing makes any more"
    assert build.main(["--check"]) == 0


@pytest.mark.parametrize(("board", "title", "expr"), ASKED, ids=[f"{board} {title}" for board, title, _ in ASKED])
def test_panels_ask_for_what_is_exported(board: str, title: str, expr: str) -> None:
    assert names_of(expr)
    assert problems(expr) == []


@pytest.mark.parametrize("name", RULES)
def test_rules_ask_for_what_is_exported(name: str) -> None:
    assert problems(RULES[name], RECORDED) == []


@pytest.mark.parametrize("metric", CATALOGUE.values(), ids=CATALOGUE)
def test_every_metric_is_shown_or_the_reason_is_known(metric: Metric) -> None:
    asked = set().union(*(names_of(expr) for *_, expr in ASKED), *(names_of(expr) for expr in RULES.values()))
    shown = bool(asked.intersection(wire_names(metric)))
    assert shown or NOT_SHOWN.get(metric.name), f"show {metric.name} in a panel, or say in NOT_SHOWN why not"
    assert not (shown and metric.name in NOT_SHOWN)


def test_every_reason_is_about_a_metric_that_exists() -> None:
    assert NOT_SHOWN.keys() <= CATALOGUE.keys()
    assert len(CATALOGUE) == sum(map(len, (SHARED, AGENT, GPU, HOST, MONITOR)))


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_panels_have_ids_and_places_of_their_own(board: dict[str, Any]) -> None:
    all_ = list(panels(board))
    assert len({panel["id"] for panel in all_}) == len(all_)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in all_)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)), "panels overlap"
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_lines_of_panels_are_full(board: dict[str, Any]) -> None:
    """No holes: what starts on one height fills the width."""
    shown = [panel["gridPos"] for panel in panels(board)]
    for y, line in itertools.groupby(sorted(shown, key=lambda p: (p["y"], p["x"])), key=lambda p: p["y"]):
        assert sum(place["w"] for place in line) == 24, f"the line at {y}"


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_panel_says_what_it_answers(board: dict[str, Any]) -> None:
    for panel in panels(board):
        if panel["type"] == "row":
            assert panel["title"].endswith("?")
            continue
        assert panel["title"], panel
        assert len(panel["description"].split()) >= 5, panel["title"]
        assert panel["fieldConfig"]["defaults"].get("unit"), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None, panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    titles = [panel["title"] for panel in panels(board)]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_panel_stands_in_the_docs(board: dict[str, Any]) -> None:
    page = (REPO / "docs" / "dashboards.md").read_text(encoding="utf-8")
    for panel in panels(board):
        line = f"### {panel['title']}" if panel["type"] == "row" else f"| {panel['title']} | {panel['description']} |"
        assert f"\n{line}\n" in page


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_variables_in_queries_are_defined(board: dict[str, Any]) -> None:
    own = {variable["name"] for variable in board["templating"]["list"]}
    text = json.dumps(board)
    used = {name for pair in re.findall(r"\$(?:\{(\w+)[:}]|(\w+))", text) for name in pair if name}
    groups = {name for name in used if name.isdigit()}  # of `label_replace`: no variable, and left as it is
    assert {name for name in used - groups if not name.startswith("__")} == own


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_links_lead_to_a_dashboard_of_ours(board: dict[str, Any]) -> None:
    targets = set(re.findall(r'"url": "/d/([\w-]+)', json.dumps(board)))
    assert targets <= BOARDS.keys()
    listed = [link["url"] for link in board["links"]]
    assert {f"/d/{uid}" for uid in BOARDS.keys() - {board["uid"]}} == set(listed[:-1])


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_links_to_runbooks_lead_to_a_page(board: dict[str, Any]) -> None:
    pages = set(re.findall(r'"url": "(docs/runbooks/[^"]+)"', json.dumps(board)))
    assert pages
    assert [page for page in pages if not (REPO / page).is_file()] == []


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_series_named_by_a_node_or_run_lead_to_it(board: dict[str, Any]) -> None:
    boards = {"node": "rankpulse-node", "run_uid": "rankpulse-run"}
    for panel in panels(board):
        if panel["type"] != "timeseries":
            continue
        led = {link["url"].partition("?")[0] for link in panel["fieldConfig"]["defaults"].get("links", ())}
        legends = " ".join(target["legendFormat"] for target in panel["targets"])
        assert led == {f"/d/{uid}" for label, uid in boards.items() if f"{{{{{label}}}}}" in legends}, panel["title"]


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_incidents_and_restarts_are_marked_on_every_board(board: dict[str, Any]) -> None:
    assert [one["name"] for one in board["annotations"]["list"]] == ["Incidents", "Restarts"]


@pytest.mark.parametrize(("board", "title", "expr"), ASKED, ids=[f"{board} {title}" for board, title, _ in ASKED])
def test_ranges_fit_the_zoom_of_the_dashboard(board: str, title: str, expr: str) -> None:
    assert set(re.findall(r"\[([^\]]*)\]", expr)) <= {"$__rate_interval", "$__interval", "$__range"}


def test_writing_is_exact_and_differences_are_found(tmp_path: Any) -> None:
    files = shipped()
    assert differing(tmp_path, files) == list(files)
    write(tmp_path, files)
    assert differing(tmp_path, files) == []
    (tmp_path / "rankpulse-run.json").write_text("{}")
    (tmp_path / "rules" / "rankpulse.yml").unlink()
    assert differing(tmp_path, files) == ["rankpulse-run.json", "rules/rankpulse.yml"]


def test_a_query_for_an_unknown_metric_cannot_be_written() -> None:
    with pytest.raises(Unknown, match="rankpulse_mood"):
        Ask()("rankpulse_mood")


@pytest.mark.parametrize(
    ("expr", "wrong"),
    [
        ("rankpulse_mood", ["rankpulse_mood: nobody exports it"]),
        ("rate(rankpulse_agent_beats[5m])", ["rankpulse_agent_beats: nobody exports it"]),  # a counter without _total
        ('rankpulse_monitor_blind{node="x"}', ["rankpulse_monitor_blind has no label node"]),
        ("sum by (state) (rankpulse_run_step)", ["by (state): no metric here has it"]),
        ("sum without (instance) (rankpulse_run_step) > 1e9", []),
        ('rankpulse_run_step{run_uid=~"a|rankpulse_b{}"} or on () vector(0)', []),
        (or_zero('max(up{job="x"}) unless bool 1'), []),
    ],
)
def test_the_reader_of_queries_sees_what_nobody_exports(expr: str, wrong: list[str]) -> None:
    assert problems(expr) == wrong


def test_the_reader_of_queries_knows_the_parts_of_a_histogram() -> None:
    assert wire_names(Metric("h", "histogram", ("a",), "", "")) == ("h_bucket", "h_sum", "h_count")
    assert names_of("histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m])))") == {"h_bucket"}
    assert names_of("count(ALERTS) / up") == OWN.keys()
