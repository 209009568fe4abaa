"""Cordons that were given a time: lifted when it is over, by the monotonic clock of whoever leads.

The record says until when by the time of day, for people. A leader reads that once, when it first sees the cordon; from
then on no jump of its clock lifts a cordon early or keeps it for ever.
"""

from rankpulse.core import node_requests
from rankpulse.core.desk import Desk


class CordonTimes:
    """One per judge. Remembers only when the time of each cordon is over."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._over: dict[str, tuple[float, float]] = {}  # by node: `until` of its cordon, and when that is on our clock
        self._epoch = 0

    def judge(self) -> None:
        """Lift what is due."""
        desk = self._desk
        if desk.epoch != self._epoch:
            self._epoch = desk.epoch
            self._over.clear()
        timed = {node: cordon.until for node, cordon in desk.folder.joint.cordons.items() if cordon.until > 0.0}
        for node, until in timed.items():
            if self._over.get(node, (0.0, 0.0))[0] != until:
                self._over[node] = (until, desk.now + until - desk.at)
        self._over = {node: over for node, over in self._over.items() if node in timed}
        for node in [node for node, (_, over_at) in self._over.items() if over_at <= desk.now]:
            author = desk.folder.joint.cordons[node].author
            node_requests.lift(desk, node)
            desk.folder.say("warning", f"the cordon of {node} is over: it was given a time by {author}")
