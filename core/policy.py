"""From a diagnosis to an action, with the reason. Detect is not act: doubt, no arms, no budget end in a page."""

from typing import NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core.diagnosis import Diagnosis

NONE = "none"  # leave it alone: acting would cost more than the fault
ADOPT = "adopt"  # torchelastic restarts by itself: follow it, do not double it
WAIT = "wait"  # it may pass by itself: not before it has lasted is anything done
RESTART = "restart"  # order the agents to end the workers of the round; torchelastic starts the next
RESTART_WITHOUT = "restart_without"  # the same, and the next round forms without some nodes
DRAIN = "drain"  # the same, after the next checkpoint
RELEASE = "release"  # order the holders to end with their trainers: torchelastic decides as it would without us
STOP = "stop"  # the same, and no further round: it would fail again
OBSERVE = "observe"  # would restart, but is not armed
PAGE = "page"  # a person must look

_LEFT_ALONE = {
    d.CONTROL_PLANE_DELAY: "the path of the heartbeats is late, not the job: a restart would only lose work",
    d.SIDECAR_DEAD: "the job goes on without its sidecar: start the agent again",
}


ENDED = (  # standstills that an order may end, where the cause is certain
    d.COLLECTIVE_HANG, d.DATA_STALL, d.NETWORK_STALL, d.GPU_FAULT, d.NVLINK_DOMAIN, d.WORKER_DEAD,
)  # fmt: skip
_LEFT_OUT = (d.GPU_FAULT, d.NVLINK_DOMAIN)  # what comes back on the same machine whoever runs there
_PAGED = {
    d.COLLECTIVE_MISMATCH: "ranks call different collectives: the program's fault, and a restart alone may not help",
    d.STORAGE_STALL: "storage does not move: a restart would wait for the same storage",
    d.NUMERICAL: "numbers that are none come again from the same state: a person must choose where to go on",
    d.OOM: "memory ran out: the same work needs as much again",
    d.STARTUP_FAILURE: "the job does not come to its first step: what is missing has to be mended first",
}

CERTAIN = 0.9  # confidence from which on the cause is taken to be the cause


class Choice(NamedTuple):
    action: str
    reason: str


class Room(NamedTuple):
    """Who could be in the next round of a run if some nodes were not in it."""

    left: int  # members of the present round
    waiting: int  # spares that ask for a round
    had: int
    least: int  # as many must be there, as the job was launched (--nnodes)
    shrink: bool = True  # it may have fewer than it had

    @property
    def enough(self) -> bool:
        return self.left > 0 and self.left + self.waiting >= self.needs

    @property
    def elsewhere(self) -> bool:
        """Nobody of the round would be in the next, and spares can be it: where its nodes work and can end it."""
        return self.had > 0 and self.left == 0 and self.waiting >= max(self.needs, 1)

    @property
    def needs(self) -> int:
        return self.least if self.shrink else self.had

    @property
    def words(self) -> str:
        left = f"{self.left} of {self.had} nodes are left" if self.left else "no node of the round would be left"
        return f"{left} and {self.waiting} spares wait, it needs {self.needs}"


NOWHERE = Room(left=0, waiting=0, had=0, least=0)


class Facts(NamedTuple):
    """What the policy needs to know about the run."""

    elastic: bool  # torchelastic starts the next round when workers end
    launcher_alive: bool
    armed: bool
    orders_left: int
    joint: bool = False  # it meets through our rendezvous
    held: bool = False  # holders of its dead workers wait for a verdict: torchelastic has noticed nothing
    parted: bool = False  # a node of the round is done: there is no further round with it
    repeated: str = ""  # why it would fail once more, and the fault is the program's own
    settled: bool = True  # nothing that explains the death better can be on its way any more
    unheard: str = ""  # nodes of the round that have not been heard since, nor missed their deadline
    still_s: float | None = None  # for how long it has stood still, None when it does not
    act_after_s: float = 0.0  # a shorter standstill disturbs nobody
    unarmed: str = "orders are not armed: rankpulse arm --reason …"  # why it is not armed, where it is not
    paused: bool = False  # a person has asked that nothing be done about it
    spent: str = ""  # why the budgets of nodes and of the fleet allow no order
    rests_s: float = 0.0  # no order sooner than this after the last one; 0: it is not too soon
    room: Room = NOWHERE  # without the nodes that are dead, or to be left out
    foreign: bool = False  # a hand from outside may have been in it


NOBODY = Facts(elastic=False, launcher_alive=False, armed=False, orders_left=0)
RUN_SPENT = "the budget of restart orders without progress is used up"


def choose(diagnosis: Diagnosis, facts: Facts) -> Choice:
    """The action for a diagnosis. Total: what is not understood is paged, never acted upon."""
    if diagnosis.klass in _LEFT_ALONE:
        return Choice(NONE, _LEFT_ALONE[diagnosis.klass])
    stands = facts.still_s is not None
    if facts.held and not stands and diagnosis.klass in (*d.DEATHS, d.UNKNOWN, d.NODE_DEAD):
        return _after_held_death(diagnosis, facts)
    if facts.paused:
        return Choice(NONE, facts.unarmed)
    if diagnosis.klass in d.DEATHS and not stands:
        return _after_death(facts)
    if facts.still_s is not None and facts.still_s < facts.act_after_s:
        return Choice(WAIT, f"it may pass by itself: nothing is done before it has lasted {facts.act_after_s:g} s")
    if diagnosis.klass in _PAGED:
        return _after_mistake(diagnosis, facts)
    if diagnosis.klass in ENDED:
        return _after_hang(diagnosis, facts)
    if diagnosis.klass == d.NODE_DEAD:
        return _after_node_loss(diagnosis, facts)
    if diagnosis.klass == d.AGENT_CUT_OFF:
        return Choice(PAGE, "the job is not touched, its agent answers: restore the path from that agent to the store")
    return Choice(PAGE, "the cause is not known: acting on a guess may hit the healthy")


def _after_mistake(diagnosis: Diagnosis, facts: Facts) -> Choice:
    """What a restart does not mend: a person is told, and what comes again is stopped."""
    can = facts.elastic and facts.launcher_alive and facts.joint and facts.armed
    if facts.repeated and can and diagnosis.confidence >= CERTAIN:
        return Choice(STOP, facts.repeated)
    return Choice(PAGE, _PAGED[diagnosis.klass])


def _after_death(facts: Facts) -> Choice:
    if not facts.elastic:
        return Choice(PAGE, "the job was not started by torchelastic: nothing starts it again by itself")
    if not facts.launcher_alive:
        return Choice(PAGE, "torchelastic has ended too (its restarts are used up): start the job again")
    if facts.joint and facts.armed and facts.repeated:
        return Choice(STOP, facts.repeated)
    return Choice(
        ADOPT, "torchelastic starts the next round by itself when a worker ends; an order would restart it twice"
    )


def _after_held_death(diagnosis: Diagnosis, facts: Facts) -> Choice:
    """The worker is dead for certain, and without a verdict nobody would ever start it again."""
    if not facts.settled:
        return Choice(WAIT, "an exception may be the echo of a death that is not told of yet")
    if facts.unheard and diagnosis.confidence < CERTAIN:
        return Choice(WAIT, f"it may be the echo of lost nodes: not heard since of {facts.unheard}")
    if not facts.launcher_alive:
        return Choice(PAGE, "torchelastic has ended too: start the job again")
    if not facts.armed:
        return Choice(RELEASE, f"{facts.unarmed}; torchelastic restarts the job if it has restarts left, or ends it")
    if diagnosis.klass == d.NODE_DEAD:
        return _after_node_loss(diagnosis, facts)
    if facts.repeated:
        return Choice(STOP, facts.repeated)
    if facts.parted:
        return Choice(RELEASE, "a node has ended its work and meets nobody any more: torchelastic decides")
    spent = RUN_SPENT if facts.orders_left <= 0 else facts.spent
    if spent:
        return Choice(RELEASE, f"{spent}: torchelastic decides")
    if facts.rests_s:
        return _later(facts)
    without = _without(diagnosis, facts) if diagnosis.faults else None
    if without is not None:
        alone = Choice(RELEASE, f"{without.reason}: torchelastic decides")
        return without if without.action == RESTART_WITHOUT else alone
    return Choice(
        RESTART,
        "a worker died and is held, so all nodes meet again at once and none of torchelastic's restarts is used",
    )


def _after_hang(diagnosis: Diagnosis, facts: Facts) -> Choice:
    if not facts.elastic or not facts.launcher_alive:
        return Choice(PAGE, "no torchelastic is there to start the next round: ending the workers would end the job")
    if diagnosis.confidence < CERTAIN:
        return Choice(PAGE, f"confidence {diagnosis.confidence:.2f} is too low to end a job that may only be slow")
    if facts.parted:
        return Choice(PAGE, "a node has ended its work and meets nobody any more: there would be no next round")
    if facts.orders_left <= 0 or facts.spent:
        return Choice(PAGE, RUN_SPENT if facts.orders_left <= 0 else facts.spent)
    if not facts.armed:
        return Choice(OBSERVE, f"would restart it{_less(diagnosis, facts)} now, but {facts.unarmed}")
    if facts.joint and facts.repeated:
        return Choice(STOP, facts.repeated)
    if facts.rests_s:
        return _later(facts)
    without = _without(diagnosis, facts)
    if without is not None:
        return without
    if diagnosis.klass == d.NETWORK_STALL:
        return Choice(RESTART, "everybody has come and nothing moves between them: new connections may")
    return Choice(RESTART, "nothing moves and the culprit is known; its peers would wait until their timeout")


def _less(diagnosis: Diagnosis, facts: Facts) -> str:
    """Whom the next round would form without, as a part of a sentence."""
    without = _without(diagnosis, facts)
    left_out = without is not None and without.action == RESTART_WITHOUT
    return f" without {', '.join(diagnosis.nodes[:4])}" if left_out else ""


def _without(diagnosis: Diagnosis, facts: Facts) -> Choice | None:
    """Whether the machine is to blame: then the job goes on without it, where there is room for that."""
    broken = diagnosis.klass in _LEFT_OUT
    again = diagnosis.advice == RESTART_WITHOUT and not facts.foreign
    if not (broken or again) or not diagnosis.nodes:
        return None
    why = "its device is broken" if broken else "the same failure on the same machine and nowhere else"
    if facts.joint and facts.room.enough:
        return Choice(RESTART_WITHOUT, f"{why}: the others go on without {', '.join(diagnosis.nodes[:4])}")
    if broken:
        return Choice(PAGE, f"{why}, and its job cannot go on without it: {facts.room.words}")
    return None


def _after_node_loss(diagnosis: Diagnosis, facts: Facts) -> Choice:
    """Workers on a silent node cannot be ended from here: the others end theirs, and meet without it."""
    room = facts.room
    if facts == NOBODY:
        return Choice(PAGE, "what its job does has an incident of its own: look at the machine")
    if not facts.joint:
        return Choice(PAGE, "its job meets through torch's own rendezvous, which takes no word of ours: restart it")
    if not facts.launcher_alive:
        return Choice(PAGE, "torchelastic has ended too: start the job again, without the dead")
    if facts.parted:
        return Choice(PAGE, "a node has ended its work and meets nobody any more: there would be no next round")
    if facts.orders_left <= 0 or facts.spent:
        return Choice(PAGE, RUN_SPENT if facts.orders_left <= 0 else facts.spent)
    if not room.enough:
        return Choice(
            PAGE,
            f"its job waits for another node: {room.words}. Start torchrun on one more, by the same command: it is "
            "then restarted without the dead",
        )
    if not facts.armed:
        return Choice(PAGE, f"would restart its job without the dead now, but {facts.unarmed}")
    if facts.rests_s:
        return _later(facts)
    if room.left + room.waiting >= room.had:
        return Choice(
            RESTART_WITHOUT, "its peers wait for the dead in vain: they go on at once with a spare that waits"
        )
    return Choice(
        RESTART_WITHOUT,
        f"its peers wait for the dead in vain: they go on as {room.left + room.waiting} of {room.had} nodes, which is "
        f"enough as the job was launched ({room.least})",
    )


def _later(facts: Facts) -> Choice:
    return Choice(WAIT, f"the last order did not help: no other within {facts.rests_s:g} s of it")
