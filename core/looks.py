"""Whom to look at directly next: suspects, in turns, a few at once and not too often."""

import math
from collections.abc import Iterable
from typing import Final

from rankpulse.core import events as ev
from rankpulse.core.settings import ProbeSettings
from rankpulse.core.suspects import CONVICTED
from rankpulse.core.views import NodeView

AT_ONCE: Final = 64  # nodes, per interval
RARELY: Final = 10.0  # times the interval: of nodes that are silent for long, where nothing is decided any more
LONG_S: Final = 120.0


class Looks:
    """One per engine: numbers the looks it asks for."""

    def __init__(self, settings: ProbeSettings) -> None:
        self._settings = settings
        self._number = 0
        self._round_s = settings.interval_s  # until everybody who is suspected has had a turn

    def due(self, suspects: Iterable[NodeView], now: float) -> list[ev.Probe]:
        """The looks to take now. An agent that tells no address cannot be looked at.

        Where more are suspected than are looked at once, who was looked at last waits longest: nobody is left out.
        """
        found = [node for node in suspects if node.state is not None and node.state.probe]
        self._round_s = self._settings.interval_s * max(math.ceil(len(found) / AT_ONCE), 1)
        under_way = sum(now - node.suspect.asked_at < self._settings.interval_s - 1e-6 for node in found)
        due = [node for node in found if self._is_due(node, now)]
        due.sort(key=lambda node: (node.suspect.state == CONVICTED, node.suspect.asked_at, node.heard_at(), node.name))
        return [self._at(node, now) for node in due[: max(AT_ONCE - under_way, 0)]]

    def recent_s(self, node: NodeView, now: float) -> float:
        """What a look of this node came to is a fact about the present for so long."""
        return 2.0 * (max(self._pause_s(node, now), self._round_s) + self._settings.timeout_s)

    def _is_due(self, node: NodeView, now: float) -> bool:
        return now - node.suspect.asked_at >= self._pause_s(node, now) - 1e-6

    def _pause_s(self, node: NodeView, now: float) -> float:
        rarely = node.suspect.state == CONVICTED or (node.silent_since is not None and now - node.silent_since > LONG_S)
        return self._settings.interval_s * (RARELY if rarely else 1.0)

    def _at(self, node: NodeView, now: float) -> ev.Probe:
        assert node.state is not None
        self._number += 1
        node.suspect.ask(self._number, now)
        return ev.Probe(node.name, node.state.probe, node.state.boot_id, self._number)
