"""Weighing evidence: from what the ranks of a standing round do to who is to blame. Pure, and total over any rows.

The culprit is the minority that differs: stopped, gone, not in the collective, in another operation, or silent. Doubt
keeps the confidence low, and nothing is done about it: a rank that uses the CPU or waits for a disk may only be slow.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rankpulse.core import waits
from rankpulse.core.diagnosis import NAMED_MAX, name
from rankpulse.core.evidence import SILENT, SILENT_NOW, Row
from rankpulse.core.records import Member
from rankpulse.core.words import printable

SURE, LIKELY, DOUBTFUL, UNKNOWN = 0.95, 0.9, 0.7, 0.3


class Verdict(NamedTuple):
    """Who is to blame, by the evidence. No culprits: "no laggard", with the reasons."""

    culprits: tuple[Member, ...]
    cascade: tuple[int, ...]  # all other ranks
    reasons: tuple[str, ...]
    confidence: float
    at_work: bool = False  # who holds up the others uses the CPU, or all do and nobody waits: slow, for all one sees


class Guess(NamedTuple):
    ranks: Iterable[int]
    confidence: float
    reasons: Iterable[str]
    at_work: bool = False


@dataclass(frozen=True)
class Scene:
    """The rows that tell of members of the round, by rank."""

    members: dict[int, Member]
    rows: dict[int, Row]
    answered: frozenset[str]  # nodes
    groups: waits.Groups
    behind: waits.Laggards | None

    def those(self, wanted: Callable[[Row], bool]) -> list[int]:
        return [rank for rank, row in sorted(self.rows.items()) if wanted(row)]

    def is_few(self, ranks: Sequence[int]) -> bool:
        """A minority, and not nobody."""
        return 0 < 2 * len(ranks) < len(self.members)

    def each(self, ranks: Iterable[int], text: Callable[[Row], str]) -> list[str]:
        return [f"{name(self.members[rank])} {text(self.rows[rank])}" for rank in list(ranks)[:8]]

    def missing(self) -> list[int]:
        return sorted(self.members.keys() - self.rows.keys())


def weigh(rows: Mapping[str, Sequence[Row]], members: Iterable[Member]) -> Verdict:
    """What the rows of each node say about the members of a round.

    A row counts only for the very process that is a member on that node; all others are ignored.
    """
    scene, ignored = _scene(rows, members)
    found = next((guess for rule in _RULES if (guess := rule(scene)) is not None), _nobody(scene))
    guilty = sorted(set(found.ranks))
    reasons = [*found.reasons, *_gaps(scene)]
    if ignored:
        reasons.append(f"{ignored} rows tell of processes that are not of this round: ignored")
    return Verdict(
        tuple(scene.members[rank] for rank in guilty[:NAMED_MAX]),
        tuple(sorted(scene.members.keys() - set(guilty))),
        tuple(reasons),
        found.confidence,
        found.at_work,
    )


def _scene(rows: Mapping[str, Sequence[Row]], members: Iterable[Member]) -> tuple[Scene, int]:
    seated = {member.rank: member for member in members}
    found: dict[int, Row] = {}
    ignored = 0
    for node, told in sorted(rows.items()):
        for row in told:
            member = seated.get(row.rank)
            if member is None or (member.node, member.pid, member.start) != (node, row.pid, row.start):
                ignored += 1
            else:
                found.setdefault(row.rank, row)
    groups = waits.by_group(found)
    return Scene(seated, found, frozenset(rows), groups, waits.laggards(groups)), ignored


# --- the rules, the most telling first; None: says nothing


def _gone(scene: Scene) -> Guess | None:
    gone = scene.those(lambda row: row.state in ("Z", "X"))
    if not gone or len(gone) == len(scene.members):
        return None
    return Guess(gone, SURE, scene.each(gone, lambda _: "has ended, and its peers wait for it"))


def _stopped(scene: Scene) -> Guess | None:
    stopped = scene.those(lambda row: row.state == "T")
    if stopped and len(stopped) == len(scene.members):
        return Guess((), UNKNOWN, ("every rank is stopped (state T): somebody suspended the whole job",))
    told = scene.each(stopped, lambda _: "is stopped (state T), its peers wait for it")
    return Guess(stopped, SURE, told) if stopped else None


def _odd(scene: Scene) -> Guess | None:
    odd = waits.odd_ones(scene.groups)
    return Guess(odd.ranks, LIKELY if odd.ranks else UNKNOWN, odd.reasons) if odd is not None else None


def _behind(scene: Scene) -> Guess | None:
    """Not in the collective, and in no other."""
    found = scene.behind
    if found is None or not found.clear:
        return None
    several = len(found.ranks) > 1 and not scene.is_few(found.ranks)
    if several:
        return Guess((), UNKNOWN, (*found.reasons, "no laggard: too many have not come to tell who holds them up"))
    return _tempered(scene, found.ranks, LIKELY, found.reasons)


def _silent(scene: Scene) -> Guess | None:
    silent = scene.those(lambda row: row.server.startswith(SILENT))
    if not scene.is_few(silent) or len(scene.those(lambda row: row.server == "ok")) <= len(silent):
        return None
    told = scene.each(silent, lambda row: f"does not answer ({printable(row.server, 60)}), while others do")
    now = any(scene.rows[rank].server.startswith(SILENT_NOW) for rank in silent)
    return _tempered(scene, silent, LIKELY if now else DOUBTFUL, told)


def _missing(scene: Scene) -> Guess | None:
    missing = scene.missing()
    if not scene.is_few(missing):
        return None
    found = scene.behind
    together = waits.all_there(scene.groups) or (found.reasons[0] if found and found.reasons else "")
    told = [f"{name(scene.members[rank])} is not told of, while others are" for rank in missing[:8]]
    return Guess(missing, DOUBTFUL if together else 0.6, [*told, together] if together else told)


def _unclear(scene: Scene) -> Guess | None:
    """Somebody is behind, and waits as well."""
    found = scene.behind
    if found is None:
        return None
    stuck = waits.all_there(scene.groups)
    if stuck:
        return Guess((), 0.5, (f"no laggard: {stuck}: the link between them or the library", *found.reasons))
    if not scene.is_few(found.ranks):
        return None
    return Guess(found.ranks, 0.6, found.reasons)


def _in_the_kernel(scene: Scene) -> Guess | None:
    waiting = scene.those(lambda row: row.state == "D")
    if not scene.is_few(waiting):
        return None
    return Guess(waiting, DOUBTFUL, scene.each(waiting, _kernel_words))


def _nobody(scene: Scene) -> Guess:
    stuck = waits.all_there(scene.groups)
    seen = [position for row in scene.rows.values() for position in row.positions]
    why, at_work = "no rank differs from the others", False
    if stuck:
        why = f"{stuck}: the link between them or the library"
    elif seen and not any(map(waits.is_open, seen)):
        why = "no rank waits in a collective: they are busy elsewhere (data, evaluation, a save), or ending"
        at_work = not scene.missing() and all(map(_uses_cpu, scene.rows.values()))
    return Guess((), UNKNOWN, (f"no laggard: {why}",), at_work)


_RULES: tuple[Callable[[Scene], Guess | None], ...] = (
    _gone,
    _stopped,
    _odd,
    _behind,
    _silent,
    _missing,
    _unclear,
    _in_the_kernel,
)


def _tempered(scene: Scene, ranks: Sequence[int], confidence: float, reasons: Iterable[str]) -> Guess:
    """Less sure of those that may go on by themselves: at work, waiting for a device, or where much is unknown.

    That others use the CPU as well says nothing: NCCL spins where it waits, and what holds it up may be a save.
    """
    told = list(reasons)
    rows = [scene.rows[rank] for rank in ranks]
    if any(row.state == "D" for row in rows):
        told += scene.each([rank for rank in ranks if scene.rows[rank].state == "D"], _kernel_words)
        return Guess(ranks, DOUBTFUL, told)
    if any(map(_uses_cpu, rows)):
        why = "it uses the CPU while the others wait: it may be slow, not hung"
        return Guess(ranks, DOUBTFUL, [*told, why], at_work=all(map(_uses_cpu, rows)))
    return Guess(ranks, min(confidence, 0.8) if scene.missing() else confidence, told)


def _uses_cpu(row: Row) -> bool:
    """It runs, or has run between two looks: on a crowded machine one at work gets little of it."""
    return row.cpu_moving is True or row.state == "R"


def _kernel_words(row: Row) -> str:
    where = f", {printable(row.wchan, 60)}" if row.wchan else ""
    return f"waits in the kernel (state D{where}): for storage or a driver, and no signal ends it there"


def _gaps(scene: Scene) -> list[str]:
    """What the verdict could not see."""
    told = []
    silent_nodes = sorted({member.node for member in scene.members.values()} - scene.answered)
    if silent_nodes:
        told.append(f"no evidence from {', '.join(silent_nodes[:5])}{' and more' if len(silent_nodes) > 5 else ''}")
    lost = [rank for rank in scene.missing() if scene.members[rank].node in scene.answered]
    if lost:
        told.append(f"the agents do not tell of ranks {', '.join(map(str, lost[:8]))}")
    return told
