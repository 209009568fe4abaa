"""How a dashboard of ours is put together: panels by their question, laid out by themselves, in Grafana's own form.

grafanalib knows the fields. What it writes in the form of older versions (thresholds, bar gauges, variables) is given
in the present form here, and what it leaves empty is left out.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from grafanalib import core as g

SCHEMA: Final = 39  # Grafana 10 and later
WIDTH: Final = 24
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
GREEN, YELLOW, RED, BLUE, GREY = "green", "yellow", "red", "blue", "text"
Steps = Sequence[tuple[float | None, str]]  # from which value on which colour; None: from the beginning


class Query(NamedTuple):
    """`legend` may name labels: `{{node}}`. `name` is the column of a table."""

    expr: str
    legend: str = ""
    name: str = ""


class Block(NamedTuple):
    """A row of the dashboard: its headline and its panels in reading order."""

    title: str
    panels: Sequence[Any]


def _targets(queries: Iterable[Query], *, instant: bool = False) -> list[Any]:
    form = "table" if instant else "time_series"
    return [
        g.Target(
            expr=query.expr,
            legendFormat=query.legend,
            refId=chr(ord("A") + index),
            instant=instant,
            format=form,
            datasource=SOURCE,
            intervalFactor=1,
        )
        for index, query in enumerate(queries)
    ]


def _thresholds(steps: Steps) -> dict[str, Any]:
    shown = [{"color": color, "value": value} for value, color in steps]
    return {"fieldConfig": {"defaults": {"thresholds": {"mode": "absolute", "steps": shown}}}}


def says(words: dict[int, tuple[str, str]]) -> list[dict[str, Any]]:
    """Numbers shown as words: value -> text and colour."""
    options = {
        str(value): {"text": text, "color": color, "index": index}
        for index, (value, (text, color)) in enumerate(words.items())
    }
    return [{"type": "value", "options": options}]


def stat(
    title: str,
    why: str,
    query: Query,
    *,
    unit: str = "short",
    steps: Steps = ((None, GREY),),
    words: list[dict[str, Any]] | None = None,
    none: str = "no data",
    text: str = "value",
    decimals: int | None = None,
    size: tuple[int, int] = (3, 4),
) -> Any:
    """One number, read from across the room."""
    return g.Stat(
        title=title,
        description=why,
        dataSource=SOURCE,
        targets=_targets([query]),
        format=unit,
        decimals=decimals,
        mappings=words or [],
        noValue=none,
        reduceCalc="lastNotNull",
        textMode=text,
        colorMode="background" if len(steps) > 1 or words else "value",
        graphMode="none",
        gridPos=size,
        extraJson=_thresholds(steps),
    )


def graph(
    title: str,
    why: str,
    *queries: Query,
    unit: str = "short",
    steps: Steps = ((None, GREEN),),
    stacked: bool = False,
    bars: bool = False,
    stepped: bool = False,
    overrides: list[dict[str, Any]] | None = None,
    top: int | None = None,
    size: tuple[int, int] = (8, 7),
) -> Any:
    """How something went over time; thresholds are drawn as lines. `bars`: increases over `$__interval` each."""
    return g.TimeSeries(
        title=title,
        description=why,
        dataSource=SOURCE,
        targets=_targets(queries),
        unit=unit,
        drawStyle="bars" if bars else "line",
        lineInterpolation="stepAfter" if stepped else "linear",
        fillOpacity=60 if bars or stacked else 8,
        stacking={"mode": "normal", "group": "A"} if stacked else {"mode": "none"},
        showPoints="never",
        tooltipMode="multi",
        tooltipSort="desc",
        axisSoftMin=0,
        valueMin=0,
        valueMax=top,
        valueDecimals=0 if bars else None,  # increases are estimates: 1.03 incidents are one
        overrides=overrides or [],
        thresholdsStyleMode="dashed" if len(steps) > 1 else "off",
        maxDataPoints=None,
        interval="1m" if bars else None,  # at least: an increase needs some scrapes
        gridPos=size,
        extraJson=_thresholds(steps),
    )


def table(title: str, why: str, *queries: Query, links: dict[str, str], none: str, size: tuple[int, int]) -> Any:
    """One line per thing: the queries share their labels, each adds a column. `links`: column -> where it leads."""
    columns = {f"Value #{chr(ord('A') + index)}": query.name for index, query in enumerate(queries) if query.name}
    hidden = [f"Value #{chr(ord('A') + index)}" for index, query in enumerate(queries) if not query.name]
    units = [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": "s"}]}
        for name in columns.values()
        if name.endswith(" for")
    ]
    led = [
        {
            "matcher": {"id": "byName", "options": column},
            "properties": [{"id": "links", "value": [{"title": "open", "url": url}]}],
        }
        for column, url in links.items()
    ]
    order = {"excludeByName": dict.fromkeys(["Time", *hidden], True), "renameByName": columns, "indexByName": {}}
    return g.Table(
        title=title,
        description=why,
        dataSource=SOURCE,
        targets=_targets(queries, instant=True),
        transformations=[{"id": "merge", "options": {}}, {"id": "organize", "options": order}],
        overrides=[*units, *led],
        gridPos=size,
        span=None,
        thresholds=[{"color": GREY, "value": None}],
        extraJson={"fieldConfig": {"defaults": {"noValue": none, "unit": "none"}}},
    )


def variable(name: str, label: str, query: str, *, every: bool) -> dict[str, Any]:
    """A choice above the dashboard, filled by a query. `every`: "All" is offered, and chosen at first."""
    made = g.Template(
        name=name,
        label=label,
        query=query,
        dataSource=SOURCE,
        includeAll=every,
        multi=every,
        allValue=".*" if every else None,  # also finds what has no such label at all
        refresh=2,  # with the time range: a run of last night can be chosen as well
        sort=1,
    ).to_json_data()
    chosen = {"selected": True, "text": "All", "value": "$__all"} if every else {}
    return {**made, "current": chosen, "definition": query}


def datasource() -> dict[str, Any]:
    """The choice of the Prometheus that is asked."""
    made = g.Template(name="datasource", label="Prometheus", query="prometheus", type="datasource").to_json_data()
    return {**made, "current": {}}


def link(title: str, uid: str) -> Any:
    """A link to another dashboard of ours, with time range and variables."""
    return g.DashboardLink(title=title, type="link", uri=f"/d/{uid}", icon="dashboard", keepTime=True, includeVars=True)


def placed(blocks: Iterable[Block]) -> list[Any]:
    """All panels with their places: left to right, a new line where one does not fit, a headline above each block."""
    made, y = [], 0
    for block in blocks:
        made.append(g.RowPanel(title=block.title, gridPos=g.GridPos(h=1, w=WIDTH, x=0, y=y)))
        x, y, tallest = 0, y + 1, 0
        for panel in block.panels:
            width, height = panel.gridPos
            if x + width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            panel.gridPos = g.GridPos(h=height, w=width, x=x, y=y)
            x, tallest = x + width, max(tallest, height)
            made.append(panel)
        y += tallest
    return made


def dashboard(
    uid: str, title: str, why: str, variables: list[dict[str, Any]], links: list[Any], blocks: Iterable[Block]
) -> dict[str, Any]:
    """The whole dashboard as plain values."""
    made = g.Dashboard(
        title=title,
        uid=uid,
        description=why,
        tags=["rankpulse"],
        timezone="browser",
        time=g.Time("now-3h", "now"),
        refresh="10s",
        schemaVersion=SCHEMA,
        graphTooltip=1,
        links=links,
        templating=g.Templating([datasource(), *variables]),
        panels=placed(blocks),
    ).auto_panel_ids()
    plain: dict[str, Any] = _plain(made)
    return plain


def _plain(value: Any) -> Any:
    """Plain values without what is not set; but the beginning of a scale is null on purpose."""
    if hasattr(value, "to_json_data"):
        return _plain(value.to_json_data())
    if isinstance(value, dict):
        kept = {key: _plain(one) for key, one in value.items()}
        if kept.keys() == {"color", "value"}:
            return kept
        old = _OLD | {"query"} if "expr" in kept else _OLD
        return {key: one for key, one in kept.items() if one is not None and key not in old}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


_OLD: Final = frozenset(  # fields of long gone versions that grafanalib still writes
    {"__inputs", "editable", "error", "hideControls", "rows", "sharedCrosshair", "style", "hideTimeOverride",
     "intervalFactor", "metric", "step", "target", "useTags", "auto", "auto_min", "auto_count", "columns",
     "fontSize", "span", "minSpan", "height"}
)  # fmt: skip
