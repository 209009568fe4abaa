"""Whom everybody waits for: by collective positions where they are told, by what ranks are seen doing where not.

Positions come first, for they are proof of who waits for whom. What is seen narrows down what they leave open.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from rankpulse.core import culprit, signs
from rankpulse.core import stacks as st
from rankpulse.core.culprit import Finding
from rankpulse.core.ends import Weight, ends
from rankpulse.core.presumed import presumed
from rankpulse.core.scene import Scene
from rankpulse.core.snapshot import COMPLETED, Position, Rank
from rankpulse.core.stacks import doing, ranks_in_words
from rankpulse.core.watchdog_lines import with_positions

NOBODY: Final = culprit.NOBODY
STUCK: Final = culprit.STUCK
LINK: Final = culprit.LINK
MISMATCH: Final = culprit.MISMATCH
OUT_OF_STEP: Final = culprit.OUT_OF_STEP
UNCLEAR: Final = culprit.UNCLEAR
WAITING: Final = (st.COLLECTIVE, st.DEVICE)
MOST: Final = 0.5  # of those that are seen: more than that are no minority
NOT_SURE: Final = 0.45  # how much an answer counts that is a set to look in


class Laggards(NamedTuple):
    kind: str
    ranks: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    confidence: float = 1.0
    reasons: tuple[str, ...] = ()
    host_ahead: bool = False  # the host has called what the device has not begun
    silent: bool = False  # nothing is known of them but that they do not answer


def laggards(scene: Scene) -> Laggards:
    rows = with_positions(
        scene.snap.ranks, ((s.rank, s.text) for s in scene.said if s.rank is not None and s.ref.startswith("events"))
    )
    seen = by_sight(scene)
    if not any(row.positions for row in rows):
        return seen
    found = culprit.find(rows, presumed(scene, rows))
    scene.kept["waits"] = found.waits
    return _both(scene, found, seen)


def _both(scene: Scene, found: Finding, seen: Laggards) -> Laggards:
    """What positions say, narrowed down by what is seen."""
    told = Laggards(found.kind, found.ranks, found.groups, 1.0, found.reasons, _ahead(scene, found.ranks))
    if found.kind in (MISMATCH, OUT_OF_STEP):
        return told._replace(confidence=1.0 if found.sure else 0.7)
    if found.kind == NOBODY:
        return seen
    common = tuple(rank for rank in found.ranks if rank in seen.ranks) if seen.kind == STUCK else ()
    if found.kind == STUCK and found.sure:
        return told._replace(ranks=common) if common and len(found.ranks) > 1 else told
    if common:
        return told._replace(
            kind=STUCK,
            ranks=common,
            confidence=seen.confidence,
            reasons=(*seen.reasons, *found.reasons),
            silent=seen.silent,
        )
    if found.kind in (LINK, UNCLEAR) and seen.kind == STUCK and _plain(scene, seen.ranks):
        return seen._replace(reasons=(*seen.reasons, "its own positions are old or missing"))
    if found.kind == LINK:
        return told._replace(confidence=0.9 if found.sure else 0.8)
    return told._replace(
        confidence=NOT_SURE, silent=True, reasons=(*found.reasons, "inconclusive: one of these, not all")
    )


def _ahead(scene: Scene, ranks: Iterable[int]) -> bool:
    return any(
        p.enqueued is not None and p.started is not None and p.enqueued > p.started
        for rank in ranks
        if rank in scene.ranks
        for p in scene.ranks[rank].positions
    )


def _plain(scene: Scene, ranks: Iterable[int]) -> bool:
    """Whether these are seen not to be in any collective, whatever their positions say."""
    return all(is_out_of_it(scene.ranks[rank]) for rank in ranks)


def is_out_of_it(rank: Rank) -> bool:
    """Whether this one is seen to be elsewhere than in a collective."""
    stopped = rank.state in ("T", "t", "Z", "X") or rank.alive is False or rank.pulse == "paused"
    asleep = rank.state == "D" and st.of_stack(rank.stack).what not in WAITING
    return stopped or asleep or bool(rank.gil_held) or doing(rank).what not in (*WAITING, st.UNSEEN)


def by_sight(scene: Scene) -> Laggards:
    """The minority that is not where the others are, by process state and stack, else by step and phase."""
    return (
        _left(scene) or _elsewhere(scene) or _behind(scene) or _other_phase(scene) or _mute(scene) or Laggards(NOBODY)
    )


def _left(scene: Scene) -> Laggards | None:
    """A few that ended without an error of theirs, while nobody else has ended and the others wait in collectives."""
    gone = ends(scene)
    left = tuple(sorted(end.rank for end in gone if end.weight in (Weight.CLEAN, Weight.STOPPED)))
    apart = set(left)
    inside = [rank for rank in scene.snap.ranks if rank.rank not in apart and _waits(rank)]
    if not left or len(left) != len(gone) or len(left) > MOST * len(scene.ranks) or not inside:
        return None
    why = f"{ranks_in_words(left)} ended while {len(inside)} ranks wait in collectives"
    return Laggards(STUCK, left, (), 0.95, (why,))


def _elsewhere(scene: Scene) -> Laggards | None:
    out = [rank for rank in scene.snap.ranks if is_out_of_it(rank)]
    apart = {rank.rank for rank in out}
    inside = [rank for rank in scene.snap.ranks if rank.rank not in apart and _waits(rank)]
    if out and inside and len(out) <= MOST * (len(out) + len(inside)):
        ranks = tuple(rank.rank for rank in out)
        why = f"{len(inside)} ranks wait in collectives, {ranks_in_words(ranks)} not"
        return Laggards(STUCK, ranks, (), 0.95 if len(out) == 1 else 0.85, (why,))
    if len(out) == 1 and len(scene.ranks) > 1 and not inside:
        certain = out[0].state == "T" and scene.moves is False  # the kernel's word, and enough to stop all of them
        why = "the only one whose state is not that of the others"
        return Laggards(STUCK, (out[0].rank,), (), 0.95 if certain else 0.75, (why,))
    if inside and not out and len(inside) == len(scene.ranks) > 1:
        return Laggards(LINK, (), (), 0.7, ("every rank is inside a collective, nobody is missing",))
    return None


def _waits(rank: Rank) -> bool:
    if any(map(_is_open, rank.positions)) or doing(rank).what in WAITING:
        return True
    return any(signs.sign(line) == signs.TIMED_OUT for line in (rank.error, *rank.log[-4:]))


def _is_open(position: Position) -> bool:
    """Whether it is inside a collective of this group, or may be."""
    if any(operation.state != COMPLETED for operation in position.open):
        return True
    return position.enqueued is None or position.completed is None or position.enqueued > position.completed


def _behind(scene: Scene) -> Laggards | None:
    """Ranks whose step is behind that of nearly all others."""
    steps = {rank.rank: rank.step for rank in scene.snap.ranks if rank.step is not None}
    if len(steps) < 2:
        return None
    usual, count = Counter(steps.values()).most_common(1)[0]
    late = tuple(rank for rank, step in steps.items() if step < usual)
    if not late or len(late) > MOST * len(steps) or count < 2:
        return None
    return Laggards(STUCK, late, (), 0.7, (f"{ranks_in_words(late)} behind the others, who are at step {usual}",))


def _other_phase(scene: Scene) -> Laggards | None:
    phases = {rank.rank: rank.phase for rank in scene.snap.ranks if rank.phase}
    usual = Counter(phases.values()).most_common(1)
    apart = tuple(rank for rank, phase in phases.items() if usual and phase != usual[0][0])
    if not apart or len(apart) >= MOST * len(phases):
        return None
    why = f"{ranks_in_words(apart)} in phase {phases[apart[0]]}, the others in {usual[0][0]}"
    return Laggards(STUCK, apart, (), 0.8, (why,))


def _mute(scene: Scene) -> Laggards | None:
    """Ranks of which there is no answer while the others gave one."""
    mute = tuple(
        rank.rank for rank in scene.snap.ranks if rank.dump and not rank.positions and rank.dump != "not collected"
    )
    if not mute or len(mute) >= MOST * len(scene.ranks):
        return None
    return Laggards(STUCK, mute, (), 0.6, (f"{ranks_in_words(mute)} gave no answer, all others did",), silent=True)
