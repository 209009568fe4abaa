"""Last words as a manager has them: kept ready by the training, written when somebody asks.

`at_step`, `heard`, `measured`, `forget` and `close` are the training's, and are called by all ranks alike. `answer` may
be called by any thread at any time, also while the training stands in a collective that will never end.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Event, Lock
from typing import Any, Final

from rankpulse.trainer.checkpoint import report
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.lastwords import meeting as meetings
from rankpulse.trainer.checkpoint.lastwords.gate import Gate
from rankpulse.trainer.checkpoint.lastwords.layouts import Layouts, agreed, generators_of, mark_of
from rankpulse.trainer.checkpoint.lastwords.meeting import Meeting
from rankpulse.trainer.checkpoint.lastwords.moment import Keeper, Moment
from rankpulse.trainer.checkpoint.lastwords.participant import Participant, Who
from rankpulse.trainer.checkpoint.lastwords.words import REFUSED, Answer, Plan, Question
from rankpulse.trainer.checkpoint.manifest import LAST_WORDS
from rankpulse.trainer.checkpoint.saving import run_of
from rankpulse.trainer.checkpoint.state import Captured, Part, captured
from rankpulse.trainer.checkpoint.tiers.reach import within
from rankpulse.trainer.checkpoint.together import Together

LEAST_S: Final = 2.0  # a limit is never shorter: a busy file server takes a while to say anything at all
POLL_S: Final = 0.02
POLL_MAX_S: Final = 0.5
LOOKS_S: Final = 5000  # listings of the folder per second, of all ranks, about: more of them look less often each
LOOK_S: Final = 10.0  # the training waits no longer for the folder: without one it goes on
NOTHING_YET: Final = "no step of this life is done yet, so its ranks have agreed on nothing"


def limit_s(measured_s: float | None, cap_s: float) -> float:
    """For how long last words may take, from what a save has cost (None: none was measured). 0.0: they cannot be done
    in time."""
    if measured_s is None:
        return cap_s
    if measured_s > cap_s:
        return 0.0
    return min(max(1.0 + 2.0 * measured_s, LEAST_S), cap_s)


def poll_s(world: int) -> float:
    """Between two looks of one rank. A look is a listing of a folder in which all ranks write, on a file server that
    none of them must drown."""
    return min(max(POLL_S, world / LOOKS_S), POLL_MAX_S)


@dataclass
class Setting:
    """What a manager gives. newest: step and path of the newest checkpoint that it knows to be committed; limit: the
    limit that its load obeyed."""

    parts: Sequence[Part]
    directory: str
    cap_s: float
    files: Files = field(default_factory=Files)
    newest: Callable[[], tuple[int, str]] = lambda: (-1, "")
    limit: Callable[[], int | None] = lambda: None
    tell: Callable[[bool], object] = lambda begun: None  # of an optimizer's step
    say: Callable[[str], None] = lambda text: None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], float] = time.monotonic
    report: Callable[..., object] = report.tell
    look_s: float = LOOK_S


class LastWords:
    """Of one process. Where something is missing for them training goes on as ever, and a question is answered with
    what it is."""

    def __init__(self, setting: Setting) -> None:
        self._set = setting
        self.gate = Gate(setting.tell, setting.clock)
        self._rank = 0
        self._layouts: Layouts | None = None
        self._keeper: Keeper | None = None
        self._meeting: Meeting | None = None
        self._unfounded = ""  # on rank 0: why the folder is not tried again
        self._why_not = NOTHING_YET
        self._anew = True  # ranks are to agree at the next step
        self._measured_s: float | None = None
        self._offered_s = -1.0
        self._alike = False  # whether all ranks had the same random numbers
        self._lock = Lock()
        self._over = Condition(self._lock)
        self._going: _Run | None = None
        self._last: Answer | None = None
        self._asked = 0  # questions so far

    def at_step(self, step: int, metrics: Mapping[str, float], together: Together) -> None:
        """A step is done. The first one of a life: all ranks agree. Raises RanksLost."""
        if self._anew:
            self._agree(_captured(self._set.parts), together)
        if self._keeper is None:
            self.gate.lost()
        elif self.gate.counted(step):  # others may stand at the first of the two, and their numbers would be the same
            self.gate.passed(step, Moment(step, trouble=f"step {step} was done twice, with an update in between"))
        else:
            self.gate.passed(step, self._keeper.keep(step, metrics))

    def heard(self, state: Captured, together: Together) -> None:
        """A save has agreed on a state. Where it is cut as before, that is all. Raises RanksLost."""
        known = self._layouts is not None and self._layouts.marks[together.rank] == mark_of(state)
        texts = ["" if known else f"other on {together.rank}", generators_of(state)]
        same, alike = together.same_each(texts)
        if not (same and known) or alike != self._alike:
            self._agree(state, together)
            self._keep_anew()

    def measured(self, save_s: float, rank: int) -> None:
        """What a save has cost, in seconds from the call until it was committed."""
        self._measured_s = save_s
        self._offer(rank)

    def forget(self) -> None:
        """Another state was loaded: ranks are to agree anew, and until then nobody can say anything."""
        self._anew, self._why_not, self._last = True, NOTHING_YET, None
        self.gate.lost()

    def answer(self, question: Question, within_s: float | None = None) -> Answer:
        """What becomes of it: waits until it is known. within_s: a limit of whoever calls, beside that of the question.

        Asked again while it is going on, or of the same step, it says the same.
        """
        with self._lock:
            self._asked += 1
        who = self._who()
        if isinstance(who, str):
            return Answer(REFUSED, self.gate.standing.step, who)
        if why := not_ours(question, who.run):
            return Answer(REFUSED, self.gate.standing.step, why)
        ours_s = limit_s(self._measured_s, self._set.cap_s)
        if not ours_s:
            why = f"a save takes {self._measured_s:.1f} s here, longer than last words may ({self._set.cap_s:g} s)"
            return Answer(REFUSED, self.gate.standing.step, why)
        return self._run(who, question, min(ours_s, question.within_s, within_s or ours_s))

    @property
    def directory(self) -> str:
        return self._set.directory

    @property
    def life(self) -> str:
        """What its ranks have named this life; "" before they have."""
        return self._layouts.life if self._layouts is not None else ""

    @property
    def asked(self) -> int:
        """How often anybody has asked."""
        return self._asked

    @property
    def idle(self) -> bool:
        """Whether nothing is going on."""
        return self._going is None

    @property
    def longest_s(self) -> float:
        """What goes on is over by then."""
        return self._set.cap_s + LEAST_S

    def finished(self, timeout_s: float) -> bool:
        """Waits until nothing is going on."""
        with self._lock:
            return self._over.wait_for(lambda: self._going is None, timeout_s)

    def close(self, *, over: bool = True) -> None:
        """over: training has ended in order, and nobody else will speak."""
        self.gate.close()
        meeting, self._meeting = self._meeting, None
        self._why_not, self._keeper, self._layouts = "the manager of its checkpoints was closed", None, None
        if self._rank == 0 and meeting is not None and over:
            with suppress(TimeoutError):  # else the next life removes it
                within(self._set.look_s, meeting.remove)

    def _agree(self, state: Captured | None, together: Together) -> None:
        """Called by all ranks."""
        life = self._layouts.life if self._layouts is not None else os.urandom(4).hex()
        found = agreed(together, state, life)
        self._anew, self._rank = False, together.rank
        self._layouts = self._keeper = None
        if isinstance(found, str) or state is None:
            self._why_not = str(found)
            return
        self._why_not = self._founded(found.life, together)
        if self._why_not:
            return
        self._layouts = found
        self._alike = len(set(found.generators)) == 1
        self._keeper = Keeper(self._set.parts, state)
        if self._keeper.trouble:
            self._set.say(f"last words cannot be kept ready: {self._keeper.trouble}")
        self._offer(together.rank)

    def _keep_anew(self) -> None:
        """What was kept of this step was chosen by what was agreed before: of tensors that are new it has nothing."""
        standing = self.gate.standing
        if self._keeper is None:
            self.gate.lost()
        elif standing.clean and not standing.moment.trouble:
            self.gate.passed(standing.step, self._keeper.keep(standing.step, standing.moment.metrics))

    def _founded(self, life: str, together: Together) -> str:
        """Why the folder in which this life's ranks would meet is not there; "" when it is."""
        if self._meeting is not None:
            return ""
        meeting = Meeting(self._set.files, self._set.directory, life, together.rank)
        why = ""
        if together.rank == 0:
            why = self._unfounded or self._made(meeting)
        why = str(together.tell(why))
        self._meeting = None if why else meeting
        return why

    def _made(self, meeting: Meeting) -> str:
        """Why it could not be made; "" when it is. A place that does not answer is not asked again in this life."""

        def make() -> None:
            meetings.sweep(self._set.files, self._set.directory)
            meeting.found()

        try:
            within(self._set.look_s, make)
        except OSError as error:
            why = f"the folder for last words could not be made: {error}"
            self._unfounded = why if isinstance(error, TimeoutError) else ""
            self._set.say(why)
            return why
        return ""

    def _offer(self, rank: int) -> None:
        """Whoever would ask is told for how long it would have to wait."""
        able = self._keeper is not None and not self._keeper.trouble
        offered_s = limit_s(self._measured_s, self._set.cap_s) if able else 0.0
        if rank == 0 and abs(offered_s - self._offered_s) > 0.1 * self._offered_s:
            self._offered_s = offered_s
            self._set.report("last_words", within_s=round(offered_s, 1))

    def _who(self) -> Who | str:
        layouts, keeper, meeting = self._layouts, self._keeper, self._meeting
        if layouts is None or keeper is None or meeting is None or self._anew:
            return self._why_not
        if keeper.trouble:
            return keeper.trouble
        return Who(
            self._rank, layouts, keeper, self.gate, meeting, run_of(self._set.environ), self._set.limit(),
            self._set.newest, self._committed,
        )  # fmt: skip

    def _run(self, who: Who, question: Question, within_s: float) -> Answer:
        """One at a time: who asks meanwhile adds what it knows, and gets the same answer."""
        began = self._set.clock()
        with self._lock:
            before = self._before()
            if before is not None:
                return before
            run, mine = self._going, self._going is None
            if run is None:
                run = self._going = _Run(Participant(who, began, began + within_s))
            run.participant.learn({rank: rank in question.torn for rank in (*question.absent, *question.torn)})
        if not mine:
            run.done.wait(within_s + LEAST_S)
            return run.answer or Answer(REFUSED, self.gate.standing.step, "no answer in time")
        try:
            while (answer := run.participant.advance(self._set.clock())) is None:
                time.sleep(poll_s(who.layouts.world))
            run.answer = self._last = answer
            return answer
        finally:
            run.participant.close()
            with self._lock:
                self._going = None
                self._over.notify_all()
            run.done.set()

    def _before(self) -> Answer | None:
        """What was answered of the same step."""
        last, standing = self._last, self.gate.standing
        return last if last is not None and last.saved and standing.clean and standing.step <= last.step else None

    def _committed(self, plan: Plan, path: str, size: int, took_s: float) -> None:
        """On the rank that has committed: the monitor hears of it as of any checkpoint."""
        self._set.report(
            "saved", step=plan.step, bytes=size, shards=len(plan.writers) + len(plan.absent), kind=LAST_WORDS,
            save_s=took_s, verified=False,
        )  # fmt: skip


@dataclass
class _Run:
    participant: Participant
    done: Event = field(default_factory=Event)
    answer: Answer | None = None


def _captured(parts: Sequence[Part]) -> Captured | None:
    """None for what cannot be saved: the next save says why."""
    try:
        return captured(parts)
    except Exception:  # of a state_dict() of the program's, too
        return None


def not_ours(question: Question, run: Mapping[str, Any]) -> str:
    """Why a question is meant for another life; "" when it may be ours. What is not known is taken to be right."""
    if question.run_uid and run.get("run_uid") and question.run_uid != run["run_uid"]:
        return f"asked of run {question.run_uid}, and this is {run['run_uid']}"
    if question.round >= 0 and run.get("round", -1) >= 0 and question.round != run["round"]:
        return f"asked of round {question.round}, and this is {run['round']}"
    return ""
