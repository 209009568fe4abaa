"""From a diagnosis to an action, with the reason. Detect is not act: doubt, no arms, no budget end in a page."""

from typing import NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core.diagnosis import Diagnosis

NONE = "none"  # leave it alone: acting would cost more than the fault
ADOPT = "adopt"  # torchelastic restarts by itself: follow it, do not double it
WAIT = "wait"  # it may pass by itself: not before it has lasted is anything done
RESTART = "restart"  # order the agents to end the workers of the round; torchelastic starts the next
RELEASE = "release"  # order the holders to end with their trainers: torchelastic decides as it would without us
STOP = "stop"  # the same, and no further round: it would fail again
OBSERVE = "observe"  # would restart, but is not armed
PAGE = "page"  # a person must look

_LEFT_ALONE = {
    d.CONTROL_PLANE_DELAY: "the path of the heartbeats is late, not the job: a restart would only lose work",
    d.SIDECAR_DEAD: "the job goes on without its sidecar: start the agent again",
}

_NODE_DEAD = (
    "its job should be restarted without it; that is not done from here: workers on a silent node cannot be ended, and "
    "its place must be filled or left out first"
)


class Choice(NamedTuple):
    action: str
    reason: str


class Facts(NamedTuple):
    """What the policy needs to know about the run."""

    elastic: bool  # torchelastic starts the next round when workers end
    launcher_alive: bool
    armed: bool
    orders_left: int
    joint: bool = False  # it meets through our rendezvous
    held: bool = False  # holders of its dead workers wait for a verdict: torchelastic has noticed nothing
    parted: bool = False  # a node of the round is done: there is no further round with it
    repeated: bool = False  # the program's own error, for the second time, without progress in between
    settled: bool = True  # nothing that explains the death better can be on its way any more
    still_s: float | None = None  # for how long it has stood still, None when it does not
    act_after_s: float = 0.0  # a shorter standstill disturbs nobody


NOBODY = Facts(elastic=False, launcher_alive=False, armed=False, orders_left=0)


def choose(diagnosis: Diagnosis, facts: Facts) -> Choice:
    """The action for a diagnosis. Total: what is not understood is paged, never acted upon."""
    if diagnosis.klass in _LEFT_ALONE:
        return Choice(NONE, _LEFT_ALONE[diagnosis.klass])
    if facts.held and diagnosis.klass in (d.WORKER_DEAD, d.UNKNOWN):
        return _after_held_death(facts)
    if diagnosis.klass == d.WORKER_DEAD:
        return _after_death(facts)
    if facts.still_s is not None and facts.still_s < facts.act_after_s:
        return Choice(WAIT, f"it may pass by itself: nothing is done before it has lasted {facts.act_after_s:g} s")
    if diagnosis.klass == d.COLLECTIVE_HANG:
        return _after_hang(diagnosis, facts)
    if diagnosis.klass == d.NODE_DEAD:
        return Choice(PAGE, _NODE_DEAD)
    if diagnosis.klass == d.AGENT_CUT_OFF:
        return Choice(PAGE, "the job is not touched, its agent answers: restore the path from that agent to the store")
    return Choice(PAGE, "the cause is not known: acting on a guess may hit the healthy")


def _after_death(facts: Facts) -> Choice:
    if not facts.elastic:
        return Choice(PAGE, "the job was not started by torchelastic: nothing starts it again by itself")
    if not facts.launcher_alive:
        return Choice(PAGE, "torchelastic has ended too (its restarts are used up): start the job again")
    return Choice(
        ADOPT, "torchelastic starts the next round by itself when a worker ends; an order would restart it twice"
    )


def _after_held_death(facts: Facts) -> Choice:
    """The worker is dead for certain, and without a verdict nobody would ever start it again."""
    if not facts.settled:
        return Choice(WAIT, "an exception may be the echo of a death that is not told of yet")
    if not facts.launcher_alive:
        return Choice(PAGE, "torchelastic has ended too: start the job again")
    if not facts.armed:
        return Choice(
            RELEASE, "orders are not armed: torchelastic restarts the job if it has restarts left, or ends it"
        )
    if facts.repeated:
        return Choice(STOP, "the same error of the program again, and no progress since: it would only fail once more")
    if facts.parted:
        return Choice(RELEASE, "a node has ended its work and meets nobody any more: torchelastic decides")
    if facts.orders_left <= 0:
        return Choice(RELEASE, "the budget of restart orders without progress is used up: torchelastic decides")
    return Choice(
        RESTART,
        "a worker died and is held, so all nodes meet again at once and none of torchelastic's restarts is used",
    )


def _after_hang(diagnosis: Diagnosis, facts: Facts) -> Choice:
    if not facts.elastic or not facts.launcher_alive:
        return Choice(PAGE, "no torchelastic is there to start the next round: ending the workers would end the job")
    if diagnosis.confidence < 0.9:
        return Choice(PAGE, f"confidence {diagnosis.confidence:.2f} is too low to end a job that may only be slow")
    if facts.parted:
        return Choice(PAGE, "a node has ended its work and meets nobody any more: there would be no next round")
    if facts.orders_left <= 0:
        return Choice(PAGE, "the budget of restart orders without progress is used up")
    if not facts.armed:
        return Choice(OBSERVE, "would restart it now, but orders are not armed: rankpulse arm --reason …")
    return Choice(RESTART, "nothing moves and the culprit is known; its peers would wait until their timeout")
