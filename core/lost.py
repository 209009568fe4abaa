"""Who is lost to the next round of a run: neither in it nor waited for.

That is less than a verdict. Whoever is back in time is in the round again, and later a spare; so the time that a node
is given here is short where its agent is seen to be gone, for without its agent no node can join.
"""

from typing import Final

from rankpulse.core import diagnosis as d
from rankpulse.core import events as ev
from rankpulse.core.desk import Desk
from rankpulse.core.suspects import CONVICTED, SUSPECT
from rankpulse.core.views import NodeView, RunView

AGENT_GONE_S: Final = 5.0  # its machine says that no agent listens: one that only starts again is back by then
RECENT_S: Final = 3.0  # what a look came to so long ago still counts


def lost(desk: Desk, run: RunView) -> tuple[str, ...]:
    """Nodes of the last round, and of those that wait for the next, that it has to form without."""
    joint = run.joint
    if joint is None or not joint.last:
        return ()
    names = {place.node for place in joint.meetings[joint.last].places} | {one.node for one in joint.waiting()}
    return tuple(sorted(name for name in names & desk.folder.fleet.deadlines.late.keys() if is_lost(desk, name)))


def is_back(desk: Desk, name: str) -> bool:
    """Whether a node that was lost is heard now: by a beat, and since this monitor can see."""
    fleet = desk.folder.fleet
    node = fleet.nodes.get(name)
    on_time = node is not None and name in fleet.deadlines and name not in fleet.deadlines.late
    return on_time and node is not None and node.arrival.again_at >= fleet.anew.at


def is_lost(desk: Desk, name: str) -> bool:
    """Whether a late node has been silent for long enough, by what was last heard of its machine."""
    node = desk.folder.fleet.deadlines.late.get(name)
    if node is None or node.silent_since is None:
        return False
    if node.suspect.state == CONVICTED:
        return True
    quiet_s = desk.now - max(node.heard_at(), desk.folder.fleet.anew.at)
    answer = _last_look(node, desk.now)
    if answer == ev.REFUSED:
        return quiet_s >= AGENT_GONE_S
    if answer == ev.ACCEPTED:
        return quiet_s >= desk.times.node_s
    silent = answer != ev.ANSWERED and node.suspect.state == SUSPECT
    return silent and (_was_convicted(desk, name) or quiet_s >= desk.times.unwitnessed_s)


def _last_look(node: NodeView, now: float) -> str:
    look = node.suspect.look
    return look.answer if look is not None and now - look.at <= RECENT_S else ""


def _was_convicted(desk: Desk, name: str) -> bool:
    """By the last leader: its incident stands. That the node is late again, as seen from here, is enough."""
    return any(name in i.nodes and i.klass == d.NODE_DEAD for i in desk.book.open())
