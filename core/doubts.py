"""Settings that are allowed and hardly meant: a sentence for each, and what would follow from it."""

from collections.abc import Iterator

from rankpulse.core import cost_rule
from rankpulse.core.settings import DetectSettings, ProbeSettings, Settings
from rankpulse.core.silence import LOOK_S
from rankpulse.core.suspects import ASKED_MAX


def doubts(settings: Settings) -> list[str]:
    """What a person should look at again; [] for every preset as it is."""
    return [*_too_soon(settings.detect), *_out_of_order(settings.detect), *_looks(settings.probe)]


def _too_soon(detect: DetectSettings) -> Iterator[str]:
    least_s = detect.heartbeat_interval_s + detect.margin_floor_s
    for name in ("node_dead_after_s", "unwitnessed_after_s", "rack_dead_after_s"):
        if 0 < getattr(detect, name) < least_s:
            yield (
                f"detect.{name} = {getattr(detect, name):g} is less than detect.heartbeat_interval_s and "
                f"detect.margin_floor_s together ({least_s:g}): nobody is late before that"
            )


def _out_of_order(detect: DetectSettings) -> Iterator[str]:
    """Where at least one of two times was set: the cost rule keeps its own promises."""
    times = cost_rule.times(detect, None)
    for name, other_s, why in (
        ("unwitnessed_after_s", times.unwitnessed_s, "with a witness one waits for longer than without"),
        ("rack_dead_after_s", times.rack_s, "several nodes at once are given up sooner than one"),
    ):
        if other_s < times.node_s and not {name, "node_dead_after_s"} <= set(times.by_rule):
            one, node = f"{other_s:g}{_by(name, times)}", f"{times.node_s:g}{_by('node_dead_after_s', times)}"
            yield f"detect.{name} is {one}, detect.node_dead_after_s {node}: {why}"
    if detect.silence_ceiling_s < detect.sidecar_dead_after_s:
        yield (
            f"detect.silence_ceiling_s = {detect.silence_ceiling_s:g} is less than detect.sidecar_dead_after_s "
            f"({detect.sidecar_dead_after_s:g}): a person is called before it can be told that only the agent is gone"
        )


def _by(name: str, times: cost_rule.Times) -> str:
    return " by the cost rule" if name in times.by_rule else ""


def _looks(probe: ProbeSettings) -> Iterator[str]:
    if probe.timeout_s > LOOK_S:
        yield f"probe.timeout_s = {probe.timeout_s:g}: nobody waits for a look for longer than {LOOK_S:g} s"
    if probe.timeout_s >= ASKED_MAX * probe.interval_s:
        yield (
            f"probe.timeout_s = {probe.timeout_s:g} is {ASKED_MAX} times probe.interval_s or more: "
            "a look would be given up for newer ones before it can come back"
        )
