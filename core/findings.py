"""What an incident's evidence came to, kept beside it: the verdict, the rows that matter, and what is missing. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from rankpulse.core.assembling import NOBODY_TOLD, Told
from rankpulse.core.diagnosis import NAMED_MAX
from rankpulse.core.records import Before, Counts, DumpRow, Finding, Missing
from rankpulse.core.snapshot import Rank, Snapshot
from rankpulse.core.stacks import folded
from rankpulse.core.verdict import Verdict
from rankpulse.core.views import RoundView
from rankpulse.core.words import printable

CULPRITS_MAX: Final = 16
OUTLIERS_MAX: Final = 8
ROW_MAX: Final = 64  # dumps, missing ranks
TEXTS_MAX, TEXT_MAX = 32, 600


def finding(
    verdict: Verdict | None, snapshot: Snapshot, told: Told, round_: RoundView, order_id: str, at: float
) -> Finding:
    """For an incident that is yet to be named. No verdict: what was collected is kept all the same."""
    guilty = set(verdict.culprits.ranks) if verdict is not None else set()
    by_rank = {rank.rank: rank for rank in snapshot.ranks}
    apart = [rank for fold in folded(snapshot.ranks)[:-1] for rank in fold.ranks if rank not in guilty]
    dumps, missing = list(_dumps(told, guilty, apart)), list(_missing(snapshot.ranks))
    answered = sorted({*told.dossier.parts, *told.rows})
    kept = Finding(
        id="",
        at=at,
        order_id=order_id,
        culprits=tuple(by_rank[rank] for rank in sorted(guilty & by_rank.keys())[:CULPRITS_MAX]),
        outliers=tuple(by_rank[rank] for rank in apart[:OUTLIERS_MAX]),
        dumps=tuple(dumps[:ROW_MAX]),
        missing=tuple(missing[:ROW_MAX]),
        asked=round_.nodes()[:NAMED_MAX],
        answered=tuple(answered[:NAMED_MAX]),
        counts=Counts(len(round_.nodes()), len(answered), len(missing), len(dumps)),
    )
    return kept if verdict is None else _said(kept, verdict)


def _said(kept: Finding, verdict: Verdict) -> Finding:
    return msgspec.structs.replace(
        kept,
        klass=verdict.klass,
        kind=verdict.kind,
        confidence=verdict.confidence,
        summary=printable(verdict.summary, TEXT_MAX),
        reasons=_texts(verdict.reasons),
        hints=_texts(verdict.hints),
        steps=_texts(verdict.steps),
        signature=printable(verdict.signature, TEXT_MAX),
        seen=Before(verdict.seen.times, verdict.seen.nodes[:NAMED_MAX], verdict.seen.last_action),
        waits=_texts(verdict.waits),
        machines=_texts(verdict.machines),
        stacks=_texts(verdict.stacks),
        also=_texts(cause.summary for cause in verdict.also),
    )


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(printable(text, TEXT_MAX) for text in list(texts)[:TEXTS_MAX])


def _dumps(told: Told, guilty: set[int], apart: list[int]) -> Iterable[DumpRow]:
    """Those of whoever matters first; each node speaks of its own."""
    rows = [
        DumpRow(node, dump.rank, printable(dump.name, 200), dump.bytes)
        for node, (part, _) in sorted(told.dossier.parts.items())
        for dump in part.dumps
    ]
    others = set(apart)
    return sorted(rows, key=lambda row: (row.rank not in guilty, row.rank not in others, row.rank, row.node))


def _missing(ranks: Iterable[Rank]) -> Iterable[Missing]:
    for rank in ranks:
        if rank.dump.startswith(NOBODY_TOLD):
            yield Missing(rank.rank, rank.node, printable(rank.dump, 200))
