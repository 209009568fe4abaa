"""The cases, with the truth about each; and how an answer is held against it."""

import asyncio
import random
import re
import time
from dataclasses import dataclass, field

from rankpulse.core import records as r
from rankpulse.core import verdict as v
from rankpulse.core.diagnosis import name
from rankpulse.drills.hangs.theatre import SAVE_S, Theatre

KNOWN_S, WORK_S = 20.0, 45.0  # a verdict that is not right by then does not become so; of one at work
STAYS_S = 1.0  # and it has to stand
SAVED_S = SAVE_S + 4.0
RESTART, PAGE, ADOPT = ("observe",), ("page",), ("adopt",)  # not armed: what would be ordered is observed


@dataclass(frozen=True)
class Case:
    """A fault in a rank drawn by lot, and the right answer. `klass` "": none, there must be no incident."""

    fault: str
    klass: str
    actions: tuple[str, ...]
    says: str  # a pattern that summary or reasons must fit: not only who, but why
    told: str  # for people
    slow: bool = False  # it takes half a minute

    @property
    def healthy(self) -> bool:
        return not self.klass

    @property
    def stands(self) -> bool:
        """The job stands still until somebody ends it, so that there is time to ask."""
        return not self.healthy and self.actions != ADOPT


CASES = {
    case.fault: case
    for case in (
        Case("stopped", v.COLLECTIVE_HANG, RESTART, r"stopped", "SIGSTOP in its computation"),
        Case("deadlock", v.COLLECTIVE_HANG, RESTART, r"waiting for a lock", "two locks of its own code"),
        Case("gil_asleep", v.COLLECTIVE_HANG, RESTART, r"GIL", "C code that waits and holds Python's lock"),
        Case("own_loader", v.DATA_STALL, RESTART, r"data loader", "a loader of its own, whose worker is dead"),
        Case("pipe", v.STORAGE_STALL, (*RESTART, *PAGE), r"pipe", "writing to a pipe that nobody reads"),
        Case("skip", v.COLLECTIVE_MISMATCH, PAGE, r"all_gather", "leaves out a collective"),
        Case("operation", v.COLLECTIVE_MISMATCH, PAGE, r"all_reduce", "calls another operation than the others"),
        Case("torch_loader", v.WORKER_DEAD, ADOPT, r"DataLoader worker", "torch's loader, whose worker is killed"),
        Case("shape_more", v.COLLECTIVE_MISMATCH, ADOPT, r"all_gather", "gives more to a collective than the others"),
        Case("shape_less", v.WORKER_DEAD, ADOPT, r"SIGABRT", "gives less to a collective than the others"),
        Case("leaves", v.WORKER_DEAD, ADOPT, r"exited|gone|left|ended", "os._exit(0), without a word"),
        Case("killed", v.WORKER_DEAD, ADOPT, r"SIGKILL", "SIGKILL"),
        Case("save", "", (), "", "a checkpoint of 20 s, announced"),
        # the second time that this job fails so: who would have restarted it may leave it to a person now
        Case("gil_busy", v.COLLECTIVE_HANG, (*RESTART, *PAGE), r"GIL", "C code that computes for ever", slow=True),
        Case("save_unsaid", "", (), "", "a checkpoint of 20 s, of which nobody is told", slow=True),
    )
}


@dataclass
class Played:
    """What came of a case. `wrong`: where the answer differs from the truth."""

    case: Case
    victim: r.Member
    seed: str
    after_s: float | None = None  # until the right verdict
    incidents: list[r.Incident] = field(default_factory=list)
    finding: r.Finding | None = None
    wrong: list[str] = field(default_factory=list)

    @property
    def spoilt(self) -> bool:
        """torchelastic ended the odd rank, because another of its node was aborted, before it could say what it called.

        It waits a tenth of a second, and does not notice where there are worker holders.
        """
        text = " ".join(reason for one in self.incidents for reason in one.reasons)
        return self.case.fault == "shape_more" and f"then {name(self.victim)} ended by SIGTERM" in text

    def line(self) -> str:
        said = "; ".join(f"{one.klass} {[m.rank for m in one.culprits]} {one.action}" for one in self.incidents)
        after = "" if self.after_s is None else f" after {self.after_s:.1f} s"
        return f"{self.case.fault}: rank {self.victim.rank} on {self.victim.node}: {said or 'no incident'}{after}"


async def play(theatre: Theatre, case: Case, seed: str) -> Played:
    """Rank and moment drawn by `seed`. Whatever came of it, the job trains again afterwards."""
    rng = random.Random(seed)  # noqa: S311
    played = Played(case, rng.choice(theatre.roster().members), seed)
    await asyncio.sleep(rng.uniform(0.0, 0.2))
    since = time.time()
    theatre.job.ask(played.victim.pid, case.fault)
    if case.healthy:
        await asyncio.sleep(SAVED_S)
        await theatre.trains(0, 20.0)
        played.incidents = theatre.incidents(since)
    else:
        await _answered(theatre, played, since)
        await theatre.begin_anew()
    played.incidents = [_same(theatre, one) for one in played.incidents]
    late = ["no right answer in time"] if played.after_s is None and not case.healthy else []
    played.wrong = wrong(played) + late + (evidence_wrong(played) if case.stands else [])
    return played


async def _answered(theatre: Theatre, played: Played, since: float) -> None:
    """Until the right answer stands, or none comes any more."""
    ends = time.monotonic() + (WORK_S if played.case.slow else KNOWN_S)
    while time.monotonic() < ends:
        played.incidents = theatre.incidents(since)
        if played.incidents and not wrong(played):
            played.after_s = time.time() - since
            break
        await asyncio.sleep(0.05)
    await asyncio.sleep(STAYS_S)
    played.incidents = theatre.incidents(since)
    ids = {incident.id for incident in played.incidents}
    played.finding = next((one for one in theatre.stage.witness.all(r.Finding) if one.id in ids), None)


def _same(theatre: Theatre, incident: r.Incident) -> r.Incident:
    """As it stands by now: closed, if all is well."""
    return next((one for one in theatre.incidents(0.0) if one.id == incident.id), incident)


def wrong(played: Played) -> list[str]:
    """Where what is said differs from the truth."""
    case, incidents, victim = played.case, played.incidents, played.victim
    if case.healthy:
        return [f"said of a healthy job: {one.klass}: {one.summary}" for one in incidents]
    if len(incidents) != 1:
        return [f"{len(incidents)} incidents, should be one"]
    [one] = incidents
    text = " ".join((one.summary, *one.reasons))
    after = ("adopt",) if one.state == "closed" else ()  # what ended it was the end of the round
    truth = {
        f"class {one.klass}, should be {case.klass}": one.klass == case.klass,
        f"culprits {one.culprits}, should be {victim}": one.culprits == (victim,),
        f"nodes {one.nodes}": set(one.nodes) <= {victim.node},
        f"action {one.action} ({one.action_reason})": one.action in (*case.actions, *after),
        f"not said: {case.says!r} in {text!r}": re.search(case.says, text) is not None,
    }
    return [what for what, right in truth.items() if not right]


def evidence_wrong(played: Played) -> list[str]:
    """Where what is kept of the evidence differs from the truth."""
    found = played.finding
    if found is None:
        return ["no finding is kept"]
    truth = {
        f"its finding has class {found.klass}": found.klass == played.case.klass,
        f"its finding has rows of {[row.rank for row in found.culprits]}, should be the victim's":
            [row.rank for row in found.culprits] == [played.victim.rank],
        "its finding says nothing of stacks": bool(found.stacks),
        f"asked {found.asked}, answered {found.answered}": set(found.asked) == set(found.answered) != set(),
    }  # fmt: skip
    return [what for what, right in truth.items() if not right]
