"""What its evidence adds to the page of an incident: where ranks are, machines, what is missing, what to fetch."""

from collections.abc import Iterable, Iterator
from typing import Final

from rankpulse.core import gpu_words, rank_words
from rankpulse.core.naming import names_in_words
from rankpulse.core.records import Finding, Incident, Missing
from rankpulse.core.snapshot import Rank
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.words import size

ROWS_MAX: Final = 4  # ranks that are told one by one
LINES_MAX: Final = 12  # of a section
FRAMES_MAX: Final = 14  # of a stack
GROUPED_MAX: Final = 6


def cut(lines: Iterable[str], most: int = LINES_MAX) -> list[str]:
    told = list(lines)
    return told if len(told) <= most else [*told[:most], f"and {len(told) - most} more: --json"]


def sections(i: Incident, found: Finding | None) -> Iterator[tuple[str, Iterable[str]]]:
    """What the evidence adds."""
    if found is None:
        return
    yield "where ranks are, outliers first", cut(found.stacks)
    if not found.culprits:
        yield "ranks that are not where the others are", _outliers(found)
    for row in found.culprits[:1]:
        yield f"rank {row.rank}'s stack, innermost last (>: the frame that matters)", _stack(row)
    yield "their machines", cut(found.machines)
    yield "also", cut([*_corrected(i, found), *found.also])
    yield "evidence that is missing", _missing(found)
    yield "full dumps", _dumps(i, found)


def devices(i: Incident) -> Iterator[str]:
    """What is broken, by whose word, and whether it is over."""
    for fault in i.faults:
        uuid, times = f" ({fault.uuid})" if fault.uuid else "", f", {fault.count} times" if fault.count > 1 else ""
        by = f", by {gpu_words.SOURCES[fault.source]}" if fault.source in gpu_words.SOURCES else ""
        over = f"over: {fault.cleared}" if fault.cleared else f"open; {gpu_words.WORDS.get(fault.action, fault.action)}"
        yield f"{gpu_words.device(fault)}{uuid}: {fault.what}{by}{times}; {over}"


def _corrected(i: Incident, found: Finding) -> Iterator[str]:
    if found.klass and found.klass != i.klass:
        yield f"what ranks were doing said {found.klass}: {found.summary}; the incident was corrected since"


def _stack(row: Rank) -> Iterator[str]:
    told = rank_words.frame_of(row)
    if len(row.stack) > FRAMES_MAX:
        yield f"  {len(row.stack) - FRAMES_MAX} frames before"
    for place, frame in list(enumerate(row.stack))[-FRAMES_MAX:]:
        yield f"{'>' if place == told else ' '} {frame[:200]}"


def _outliers(found: Finding) -> Iterator[str]:
    for row in found.outliers[:ROWS_MAX]:
        told = [rank_words.activity(row), rank_words.facts(row)]
        yield f"{rank_words.place(row)}: {', '.join(filter(None, told)) or 'nothing is known of it'}"


def _missing(found: Finding) -> Iterator[str]:
    asked, missing = max(found.counts.asked, len(found.asked)), max(found.counts.missing, len(found.missing))
    quiet = asked - max(found.counts.answered, len(found.answered))
    if quiet > 0:
        silent = [node for node in found.asked if node not in set(found.answered)]
        names = f": {names_in_words(silent)}" if len(silent) == quiet else ""
        yield f"{quiet} of the {asked} nodes that were asked told nothing{names}"
    by_why: dict[str, list[Missing]] = {}
    for one in found.missing:
        by_why.setdefault(one.why, []).append(one)
    groups = sorted(by_why.items(), key=lambda item: -len(item[1]))
    for why, ones in groups[:GROUPED_MAX]:
        nodes = names_in_words(one.node for one in ones if one.node)
        yield f"{ranks_in_words(one.rank for one in ones)}{f' on {nodes}' if nodes else ''}: {why or 'not known why'}"
    rest = missing - sum(len(ones) for _, ones in groups[:GROUPED_MAX])
    if rest > 0:
        yield f"and {rest} more ranks"


def _dumps(i: Incident, found: Finding) -> Iterator[str]:
    if found.dumps:
        total, nodes = sum(dump.bytes for dump in found.dumps), {dump.node for dump in found.dumps}
        more = found.counts.dumps - len(found.dumps)
        others = f" ({more} more lie on their nodes, which matter less)" if more > 0 else ""
        many = f"{len(found.dumps)} on the disks of {names_in_words(nodes)}, {size(total)} in all"
        yield f"{many}{others}; to fetch them:"
        yield f"rankpulse evidence {i.id}"
