"""What is simulated, and the truth about what was done to it: the checkers hold every conclusion against this."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

CRASH, ERROR, HANG, SLOW, XID = "crash", "error", "hang", "slow", "xid"
NODE, RACK, FREEZE, ISOLATE, RACK_PAUSE = "node", "rack", "freeze", "isolate", "rack_pause"
SIDECAR, STALL, CUT_OFF = "sidecar", "stall", "cut_off"
OUTAGE, ELECTION, RACK_CUT, CLOCK = "outage", "election", "rack_cut", "clock"
MONITOR_PAUSE, MONITOR_CRASH, MONITOR_CUT = "monitor_pause", "monitor_crash", "monitor_cut"

# of every fault: how often it is drawn, and what it is, for people
FAULTS: Final[dict[str, tuple[float, str]]] = {
    CRASH: (3.0, "a rank is killed by a signal"),
    ERROR: (1.0, "a rank ends with an exception"),
    HANG: (3.0, "a rank hangs, its peers wait for it in their collectives"),
    SLOW: (1.0, "a rank is slow, and so the job is"),
    XID: (1.0, "an observation of a kind that nobody knows yet"),
    NODE: (1.5, "a machine is gone, and comes back after its reboot"),
    RACK: (0.5, "all machines of a rack are gone"),
    FREEZE: (2.0, "a machine stands still, and goes on"),
    ISOLATE: (1.0, "nothing reaches a machine, and then it does again"),
    RACK_PAUSE: (1.5, "the switch of a rack stands still for a while"),
    SIDECAR: (1.5, "an agent dies, and is started again"),
    STALL: (1.5, "an agent stands still, its machine does not"),
    CUT_OFF: (1.5, "an agent cannot reach the store, all else is well"),
    OUTAGE: (1.0, "the store is gone for up to 45 s"),
    ELECTION: (1.5, "the store has no leader for a moment"),
    RACK_CUT: (1.0, "a rack cannot reach the store"),
    CLOCK: (1.0, "a machine's or a monitor's UTC jumps by up to an hour"),
    MONITOR_PAUSE: (1.5, "a monitor is suspended for up to 45 s"),
    MONITOR_CRASH: (1.0, "a monitor dies, its place is taken"),
    MONITOR_CUT: (1.0, "a monitor cannot reach the store"),
}
SETTLED_S: Final = 15.0  # after an observer was disturbed
BREAK_RUNS: Final = (CRASH, ERROR, HANG)  # what ends a round by itself
LOSSES: Final = (NODE, RACK)
DEATHLIKE: Final = (NODE, RACK, FREEZE, ISOLATE, RACK_PAUSE)  # silent on every path while it lasts
OBSERVERS: Final = (OUTAGE, ELECTION, MONITOR_PAUSE, MONITOR_CRASH, MONITOR_CUT)
SILENCES: Final = (SIDECAR, STALL, CUT_OFF, RACK_CUT, FREEZE, ISOLATE, RACK_PAUSE, NODE, RACK)
PASSING: Final = (FREEZE, ISOLATE, RACK_PAUSE)  # of these, what is over by itself


class Options(NamedTuple):
    """What to simulate. `faults`: kinds to draw from, () all."""

    nodes: int = 64
    gpus: int = 8
    minutes: float = 12.0  # with faults; then recovery is demanded
    faults: tuple[str, ...] = ()
    preset: str = "default"


@dataclass
class Truth:
    """One thing that was done. `members`: (rank, pid) that died or hang; `until`: when it was over, None: it lasts."""

    number: int
    kind: str
    at: float
    nodes: tuple[str, ...] = ()
    members: frozenset[tuple[int, int]] = frozenset()
    run: str = ""
    round: int = -1
    until: float | None = None
    ceased_at: float | None = None  # when its round was over: then nobody has to tell of it any more
    detected_at: float | None = None
    overtaken: bool = False  # its round ended, or it was over, before anybody could tell

    def lasts(self, now: float) -> bool:
        return self.at <= now and (self.until is None or now < self.until)


@dataclass
class Book:
    """All that was done, in order."""

    truths: list[Truth] = field(default_factory=list)

    def add(self, kind: str, at: float, **what: object) -> Truth:
        truth = Truth(len(self.truths), kind, at, **what)  # type: ignore[arg-type]
        self.truths.append(truth)
        return truth

    def silent(self, node: str, now: float, slack_s: float, kinds: tuple[str, ...] = DEATHLIKE) -> Truth | None:
        """What has kept the node silent (on every path, by default) until now, or until `slack_s` ago."""
        for truth in reversed(self.truths):
            began = truth.kind in kinds and node in truth.nodes and truth.at < now
            if began and (truth.until is None or truth.until >= now - slack_s):
                return truth
        return None

    def of_round(self, run: str, round_: int, kinds: tuple[str, ...]) -> list[Truth]:
        return [one for one in self.truths if one.run == run and one.round == round_ and one.kind in kinds]

    def undisturbed(self, truth: Truth, until: float) -> bool:
        """Whether nothing else stood in the way of whoever had to tell of it until then.

        Neither store nor monitors were touched, with some time to settle before, and no agent that had to be heard.
        """
        for other in self.truths:
            if other is truth or other.at > until:
                continue
            over = other.until if other.until is not None else until
            near = truth.kind not in (CRASH, ERROR) or set(other.nodes) & set(truth.nodes)
            if other.kind in OBSERVERS and over >= truth.at - SETTLED_S:
                return False
            if other.kind in SILENCES and near and over >= truth.at - SETTLED_S:
                return False
        return True
