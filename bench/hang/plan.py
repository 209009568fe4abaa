"""How much is tried of what, and in which pieces it goes to processes."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rankpulse.bench.hang import dumps, faults
from rankpulse.bench.hang.layout import Layout
from rankpulse.bench.hang.program import Style
from rankpulse.bench.hang.trials import Score

SHARES: Final = (0.0, 0.05, 0.2)  # of dumps that are missing
BATCH: Final = 10  # trials that go to a process together
SHARED: Final = 10  # trials per kind of fault that share a run of the large job
QUICK: Final = 3
LARGE: Final = 20  # trials per kind of fault at 16,384 ranks, if nobody asks for more
EVERY: Final = 8  # there one batch in so many is judged with dumps missing and by the usual rules, too
ALL: Final = "all"  # a batch of every kind of fault


class Field(NamedTuple):
    """A topology and what is recorded of it."""

    name: str
    layout: Layout
    recorders: tuple[str, ...]
    trials: int  # per kind of fault
    style: Style | None = None  # of a large job, whose trials share a run; None: drawn for each trial


NCCL: Final = (dumps.TIMED, dumps.UNTIMED)
# programs of 16,384 ranks are short: what counts is who waits for whom at the end, not how long it went well
SHORT: Final = Style(microbatches=4, layers=1, buckets=2, steps=2)
FIELDS: Final = (
    Field("TP4 x PP4 x DP4", Layout(4, 4, 4), NCCL, 100),
    Field("TP4 x PP4 x DP4", Layout(4, 4, 4), (dumps.GLOO,), 40),
    Field("TP4 x PP4 x DP4, EP2", Layout(4, 4, 4, ep=2), (dumps.TIMED,), 20),
    Field("TP2 x PP4 x DP2", Layout(2, 4, 2), (dumps.TIMED,), 20),
    Field("TP8 x PP16 x DP128", Layout(8, 16, 128), (dumps.TIMED,), LARGE, SHORT),
)
BIG: Final = len(FIELDS) - 1


class Work(NamedTuple):
    field: int
    kind: str
    first: int
    trials: int  # per kind
    seed: int


class Result(NamedTuple):
    field: int
    kind: str
    recorder: str
    missing: float
    rule: str
    score: Score


def plan(is_quick: bool, seed: int, large: int, small: bool = True) -> Iterator[Work]:
    """The longest first, and of the large job what tells most. `small`: the other jobs, too."""
    firsts = range(0, 0 if is_quick else large, SHARED)
    batches = [Work(BIG, ALL, first, min(SHARED, large - first), seed) for first in firsts]
    yield from sorted(batches, key=lambda task: not is_full(task))
    for number, field in reversed(list(enumerate(FIELDS[:BIG]))) if small else ():
        trials = min(QUICK, field.trials) if is_quick else field.trials
        for kind in faults.KINDS:
            if kind == faults.GPU and dumps.GLOO in field.recorders:
                continue  # there is no device that the host could be ahead of
            for first in range(0, trials, BATCH):
                yield Work(number, kind, first, min(BATCH, trials - first), seed)


def is_full(task: Work) -> bool:
    """Whether dumps go missing in a batch of the large job."""
    return task.first // SHARED % EVERY == 0
