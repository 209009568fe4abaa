"""How a dashboard of ours is put together: panels by their question, laid out by themselves, in Grafana's own form.

grafanalib knows the fields. What it writes in the form of older versions (thresholds, bar gauges, variables) is given
in the present form here, and what it leaves empty is left out.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import attr
from grafanalib import core as g

from rankpulse.dashboards import links as to
from rankpulse.dashboards.promql import Ask

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


class _Heatmap(g.Panel):  # type: ignore[misc]
    """grafanalib's is that of long gone versions."""

    unit: str = attr.ib(default="s")

    def to_json_data(self) -> Any:
        options = {
            "calculate": False,
            "cellGap": 1,
            "color": {
                "mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "fill": "dark-orange",
                "reverse": False,
            },
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": False},
            "yAxis": {"axisPlacement": "left", "unit": self.unit, "reverse": False},
        }  # fmt: skip
        return self.panel_json({"type": "heatmap", "options": options, "fieldConfig": {"overrides": []}})


_HEATMAP: Final[Any] = attr.s(_Heatmap)  # with the fields of all panels


class Block(NamedTuple):
    """A row of the dashboard: its headline and its panels in reading order."""

    title: str
    panels: Sequence[Any]


def _targets(queries: Iterable[Query], *, instant: bool = False, form: str = "time_series") -> list[Any]:
    form = "table" if instant else form
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


def _defaults(steps: Steps, queries: Iterable[Query] = (), **more: Any) -> dict[str, Any]:
    """What holds for all fields: thresholds, and where a click on a series leads, by the labels that it is named by."""
    shown = [{"color": color, "value": value} for value, color in steps]
    made: dict[str, Any] = {"thresholds": {"mode": "absolute", "steps": shown}, **more}
    if led := to.of_series(query.legend for query in queries):
        made["links"] = led
    return {"fieldConfig": {"defaults": made}}


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
    runbook: str = "",
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
        links=to.runbook(runbook),
        gridPos=size,
        extraJson=_defaults(steps),
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
    words: list[dict[str, Any]] | None = None,
    runbook: str = "",
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
        mappings=words or [],
        links=to.runbook(runbook),
        gridPos=size,
        extraJson={**_defaults(steps, queries), "options": {"legend": {"showLegend": True}}},
    )


def heatmap(title: str, why: str, query: Query, *, unit: str = "s", size: tuple[int, int] = (12, 8)) -> Any:
    """How many lay in which bucket of a histogram, over time."""
    return _HEATMAP(
        title=title,
        description=why,
        dataSource=SOURCE,
        targets=_targets([query], form="heatmap"),
        interval="1m",
        maxDataPoints=None,
        unit=unit,
        gridPos=size,
        extraJson=_defaults(((None, GREEN),), unit=unit),
    )


def table(
    title: str,
    why: str,
    *queries: Query,
    links: dict[str, str],
    none: str,
    size: tuple[int, int],
    hide: Sequence[str] = (),
    runbook: str = "",
) -> Any:
    """One line per thing: the queries share their labels, each adds a column. `links`: column -> where it leads.

    A column whose name ends with "for" is a duration, one that ends with "seen" a time in UTC milliseconds.
    """
    columns = {f"Value #{chr(ord('A') + index)}": query.name for index, query in enumerate(queries) if query.name}
    hidden = [f"Value #{chr(ord('A') + index)}" for index, query in enumerate(queries) if not query.name]
    units = [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
        for name in columns.values()
        for end, unit in ((" for", "s"), (" seen", "dateTimeAsIso"))
        if name.endswith(end)
    ]
    led = [
        {
            "matcher": {"id": "byName", "options": column},
            "properties": [{"id": "links", "value": [{"title": "open", "url": url}]}],
        }
        for column, url in links.items()
    ]
    order = {"excludeByName": dict.fromkeys(["Time", *hidden, *hide], True), "renameByName": columns, "indexByName": {}}
    return g.Table(
        title=title,
        description=why,
        dataSource=SOURCE,
        targets=_targets(queries, instant=True),
        transformations=[{"id": "merge", "options": {}}, {"id": "organize", "options": order}],
        overrides=[*units, *led],
        gridPos=size,
        span=None,
        links=to.runbook(runbook),
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
    chosen = {"selected": True, "text": "All", "value": "$__all"} if every else None  # else the first there is
    return {**made, "current": chosen, "definition": query}


def datasource() -> dict[str, Any]:
    """The choice of the Prometheus that is asked."""
    made = g.Template(name="datasource", label="Prometheus", query="prometheus", type="datasource").to_json_data()
    return {**made, "current": None}


def annotations(ask: Ask) -> dict[str, Any]:
    """What happened, across all panels: incidents for as long as they were open, and restarts."""
    opened = ask.leader("rankpulse_incident_opened_timestamp_seconds", "class, incident, node, run_uid")
    restarts = f"max by (by) (increase({ask('rankpulse_restarts')}[$__interval])) > 0"
    return {
        "list": [
            _annotation("Incidents", RED, opened, "{{class}}", "{{incident}} {{node}} {{run_uid}}", "class"),
            _annotation("Restarts", BLUE, restarts, "restart by {{by}}", "", "by"),
        ]
    }


def _annotation(name: str, color: str, expr: str, title: str, text: str, tags: str) -> dict[str, Any]:
    asked = {"expr": expr, "step": "60s", "titleFormat": title, "textFormat": text, "tagKeys": tags}
    return {"datasource": SOURCE, "enable": True, "hide": False, "iconColor": color, "name": name, **asked}


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


def dashboard(uid: str, why: str, ask: Ask, variables: list[dict[str, Any]], blocks: Iterable[Block]) -> dict[str, Any]:
    """The whole dashboard as plain values. `ask`: in the scope of its annotations."""
    made = g.Dashboard(
        title=f"rankpulse: {to.BOARDS[uid]}",
        uid=uid,
        description=why,
        tags=["rankpulse"],
        timezone="browser",
        time=g.Time("now-3h", "now"),
        refresh="10s",
        schemaVersion=SCHEMA,
        graphTooltip=1,
        links=to.between(uid),
        templating=g.Templating([datasource(), *variables]),
        panels=placed(blocks),
    ).auto_panel_ids()
    plain: dict[str, Any] = _plain(made)
    return {**plain, "annotations": annotations(ask)}


def _plain(value: Any) -> Any:
    """Plain values without what is not set; but the beginning of a scale is null on purpose."""
    if hasattr(value, "to_json_data"):
        return _plain(value.to_json_data())
    if isinstance(value, dict):
        kept = {key: _plain(one) for key, one in value.items()}
        if kept.keys() == {"color", "value"}:
            return kept
        old = _OLD | _not_of(kept)
        return {key: one for key, one in kept.items() if one is not None and key not in old}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _not_of(kept: dict[str, Any]) -> frozenset[str]:
    """Fields that Grafana's types do not know in this place."""
    if "expr" in kept:  # a query
        return frozenset({"query"})
    if kept.get("type") == "row":
        return frozenset(kept) - {"collapsed", "gridPos", "id", "panels", "title", "type"}
    if kept.get("type") == "table":
        return frozenset({"color", "mappings"})
    return frozenset({"custom"}) if kept.get("custom") == {} else frozenset()


_OLD: Final = frozenset(  # fields of long gone versions that grafanalib still writes
    {"__inputs", "editable", "error", "hideControls", "rows", "sharedCrosshair", "style", "hideTimeOverride",
     "intervalFactor", "metric", "step", "target", "useTags", "auto", "auto_min", "auto_count", "columns",
     "fontSize", "span", "minSpan", "height", "time_options"}
)  # fmt: skip
