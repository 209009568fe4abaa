"""From a standing job's wait-for graph to the first mover, or to an honest set of those that it may be.

Followed from anywhere, waiting ends in one of four: a rank that waits for nobody (it never came), a meeting to which
all came and which does not end (the link or the library), a rank that nothing is known of, or a circle (somebody is out
of step with the program). Only the first two, and a circle with one odd rank in it, are told as certain. How often that
is right: docs/benchmarks/hang.md.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rankpulse.core import signatures
from rankpulse.core.circles import circles, holders
from rankpulse.core.snapshot import Group, Rank
from rankpulse.core.twins import Twins
from rankpulse.core.waiting import Meeting, Waits, waits
from rankpulse.core.words import printable

STUCK = "stuck"  # the culprits wait in no collective, and others wait for them
LINK = "link"  # all came, nothing moves: `groups`, and `ranks` if two are enough to say
MISMATCH = "mismatch"  # the culprits called something else than the rest at the same place
OUT_OF_STEP = "out_of_step"  # the culprits left out a call, or made one too many
UNCLEAR = "unclear"  # `ranks` and the members of `groups` contain the culprit, the likeliest first
NOBODY = "nobody"  # nobody waits for anybody

MANY = 0.5  # of the job idle: rather a phase without collectives than so many culprits
TOLD_MAX = 8
CLOSE_MAX = 16  # members of a group in which one that is not seen is thought to wait for another


class Finding(NamedTuple):
    """Who froze the job by its collectives. `sure` is False where `ranks` and `groups` are a set to look in."""

    kind: str
    sure: bool
    ranks: tuple[int, ...]
    groups: tuple[str, ...]
    meetings: tuple[Meeting, ...]  # where they are missed, or what does not end
    reasons: tuple[str, ...]
    waits: Waits
    assumed: bool = False  # rests on what was called, not on what was begun


@dataclass(frozen=True)
class _Scene:
    waits: Waits
    twins: Twins


def find(ranks: Iterable[Rank], groups: Iterable[Group]) -> Finding:
    """The finding of a job that stands still. Says nothing sensible of one that moves."""
    rows, told = tuple(ranks), tuple(groups)
    scene = _Scene(waits(rows, told), Twins(rows, told))
    for rule in (_nobody, _mismatch, _stuck, _all_came, _circle, _unseen):
        finding = rule(scene)
        if finding is not None:
            return finding
    return _told(scene, UNCLEAR, (), (), ("the waiting leads nowhere",), sure=False)


# --- the rules, the most telling first


def _nobody(scene: _Scene) -> Finding | None:
    if scene.waits.inside:
        return None
    return _told(scene, NOBODY, (), (), ("no rank is seen inside a collective",), sure=False)


def _mismatch(scene: _Scene) -> Finding | None:
    for one in signatures.disagreements(scene.waits):
        what = f"{place(one.meeting)}: {one.text}"
        if one.is_clear:
            return _told(scene, MISMATCH, one.odd, (one.meeting,), (what,), sure=True)
        odd, why = _odd_one(scene, one.odd)
        if odd:
            return _told(scene, MISMATCH, odd, (one.meeting,), (what, why), sure=True)
        return _told(scene, MISMATCH, one.odd, (one.meeting,), (what, "who is wrong cannot be told"), sure=False)
    return None


def _stuck(scene: _Scene) -> Finding | None:
    """Somebody is waited for and waits in nothing."""
    missed = scene.waits.missed()
    idle = tuple(sorted(rank for rank in missed if not scene.waits.of.get(rank)))
    if not idle:
        return None
    where = tuple(m for m, late in scene.waits.late.items() if not set(idle).isdisjoint(late))
    sure = len(idle) <= MANY * len(scene.waits.seen)
    return _told(scene, STUCK, idle, where, tuple(_missed(scene, idle, where)), sure=sure)


def _all_came(scene: _Scene) -> Finding | None:
    stuck = sorted(scene.waits.all_came(), key=lambda m: (len(scene.waits.everyone(m)), m))
    if not stuck:
        return None
    pair = _doubtful_pair(scene, stuck)
    odd, why = _odd_one(scene, pair)
    if odd:
        return _told(scene, OUT_OF_STEP, odd, tuple(stuck), (why,), sure=True)
    doubts = tuple(_doubts(scene, stuck, pair))
    common = set.intersection(*(set(scene.waits.everyone(m)) for m in stuck))
    ranks = tuple(sorted(common)) if len(common) == 2 else ()
    reasons = [f"all {len(scene.waits.everyone(m))} ranks have come to {place(m)}, and it does not end" for m in stuck]
    told = (*reasons[:TOLD_MAX], "the link between them or the library", *doubts)
    return _told(scene, LINK, ranks, tuple(stuck), told, sure=not doubts)


def _doubts(scene: _Scene, stuck: list[Meeting], pair: Iterable[int]) -> Iterator[str]:
    """Why it may not be the link after all."""
    if any(m in scene.waits.assumed for m in stuck):
        yield "when operations begin is not recorded: a device that stopped before it would look the same"
    if any(signatures.may_not_fit(scene.waits.inside[m]) for m in stuck):
        yield "they called it with different sizes, which is allowed: whether these fit together cannot be told"
    if not all(scene.twins.step(rank).comparable for rank in pair):
        yield "one of the two waits for the other in the reverse direction: they may be out of step with each other"


def _circle(scene: _Scene) -> Finding | None:
    """Ranks that wait for each other: one of them is not where the program is."""
    found = circles(scene.waits)
    if not found:
        return None
    ring = min(found, key=len)
    where = tuple(
        sorted({m for rank in ring for m in scene.waits.of[rank] if not ring.isdisjoint(scene.waits.late[m])})
    )
    why = f"{len(ring)} ranks wait for each other in a circle"
    held = holders(scene.waits, ring)
    odd, told = _odd_one(scene, held or sorted(ring))
    if odd:
        return _told(scene, OUT_OF_STEP, odd, where, (why, told), sure=True)
    if len(held) == 1:
        told = f"without rank {held[0]} there would be none"
        return _told(scene, OUT_OF_STEP, held, where, (why, told), sure=True)
    told = "who of them is out of step cannot be told"
    return _told(scene, OUT_OF_STEP, held or sorted(ring), where, (why, told), sure=False)


def _unseen(scene: _Scene) -> Finding | None:
    """All that are seen have come: it is one that is not seen, or the link."""
    open_ended = scene.waits.open_ended()
    if not open_ended:
        return None
    votes = Counter(rank for m in open_ended for rank in scene.waits.unseen[m])
    reasons = [
        f"rank {rank} told nothing, and waiting ends at it in {count} collectives"
        for rank, count in votes.most_common(TOLD_MAX)
    ]
    strays = scene.twins.strays()
    reasons += [f"rank {rank} is out of step with the ranks that run the same program" for rank in strays[:TOLD_MAX]]
    first = [rank for rank, _ in votes.most_common()]
    ranks = dict.fromkeys([*strays, *first, *_behind_unseen(scene, first)])
    return _told(scene, UNCLEAR, ranks, tuple(open_ended), tuple(reasons), sure=False)


# --- parts of the rules


def _odd_one(scene: _Scene, suspects: Iterable[int]) -> tuple[tuple[int, ...], str]:
    """The one suspect that is out of step with its twins while the others are not; nobody where that is not so."""
    steps = {rank: scene.twins.step(rank) for rank in suspects if not scene.twins.agree(rank)}
    for what, odd in (
        ("is out of step with the ranks that run the same program", [r for r, s in steps.items() if s.is_apart]),
        ("called what the ranks that run the same program did not", [r for r, s in steps.items() if s.is_odd]),
    ):
        if len(odd) == 1:
            return tuple(odd), f"rank {odd[0]} {what}"
    return (), ""


def _doubtful_pair(scene: _Scene, stuck: list[Meeting]) -> tuple[int, ...]:
    """Two that met in one direction while one still waits for the other in the reverse: the first may be long over."""
    for m in stuck:
        if m.seq < 0 and scene.waits.late.get(m._replace(src=m.dst, dst=m.src)):
            return (m.src, m.dst)
    return ()


def _behind_unseen(scene: _Scene, ranks: Iterable[int]) -> Iterator[int]:
    """Those not seen that these, not seen either, may wait for themselves: in a small group of both."""
    wanted = set(ranks)
    for members in scene.waits.members.values():
        if len(members) <= CLOSE_MAX and not wanted.isdisjoint(members):
            yield from (rank for rank in members if rank not in scene.waits.seen)


def _missed(scene: _Scene, idle: Iterable[int], where: Iterable[Meeting]) -> Iterator[str]:
    for rank in list(idle)[:TOLD_MAX]:
        mine = [m for m in where if rank in scene.waits.late[m]]
        first = min(mine, key=lambda m: (len(scene.waits.everyone(m)), m))
        yield f"rank {rank} is in no collective; {len(scene.waits.inside[first])} ranks wait for it in {place(first)}"


def place(meeting: Meeting) -> str:
    """In words."""
    if meeting.seq < 0:
        return f"the send from rank {meeting.src} to rank {meeting.dst} in group {printable(meeting.group, 60)}"
    return f"collective {meeting.seq} of group {printable(meeting.group, 60)}"


def _told(
    scene: _Scene, kind: str, ranks: Iterable[int], where: tuple[Meeting, ...], reasons: tuple[str, ...], *, sure: bool
) -> Finding:
    groups = tuple(dict.fromkeys(m.group for m in where))
    assumed = any(m in scene.waits.assumed for m in where)
    return Finding(kind, sure, tuple(ranks), groups, where, reasons, scene.waits, assumed)
