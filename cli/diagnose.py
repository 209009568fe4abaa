"""`rankpulse diagnose`: a snapshot from a file, its verdict for people or for programs."""

import sys
from collections.abc import Iterator
from pathlib import Path

from rankpulse.cli import flight_recorder, show
from rankpulse.cli.failing import Failed
from rankpulse.core.causes_hardware import name
from rankpulse.core.diagnosing import diagnose
from rankpulse.core.snapshot import Snapshot
from rankpulse.core.snapshot_codec import Unreadable, decode
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.verdict import Verdict


def run(file: str | None, recorder: str | None, as_json: bool) -> None:
    if (file is None) == (recorder is None):
        raise Failed("name a snapshot, or a directory of dumps by --flight-recorder: one of them")
    verdict = diagnose(read(file) if file is not None else flight_recorder.read(recorder or ""))
    show.as_json(verdict) if as_json else page(verdict)


def read(file: str) -> Snapshot:
    """The snapshot in a file, or on stdin. Raises Failed."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return decode(data)
    except OSError as error:
        raise Failed(f"cannot read {show.plain(file)}: {error.strerror}") from None
    except Unreadable as error:
        raise Failed(f"{show.plain(file)} is no snapshot: {error}. The format: docs/snapshots.md") from None


def page(verdict: Verdict) -> None:
    """The first line says what happened, the second block what to do."""
    out = show.console()
    out.print(f"{show.plain(verdict.summary)}\n", style="bold")
    show.facts(out, _head(verdict))
    for title, lines in (
        ("reasons", verdict.reasons),
        ("who waits for whom", verdict.waits),
        ("their machines", verdict.machines),
        ("where ranks are, outliers first", verdict.stacks),
        ("also", tuple(f"{cause.klass}: {cause.summary}" for cause in verdict.also)),
        ("evidence (in the snapshot)", verdict.evidence),
        ("not understood in the snapshot", verdict.unread),
    ):
        if lines:
            out.print(f"\n{title}", style="bold")
            for line in lines:
                out.print(f"  {show.plain(line)}", soft_wrap=True)


def _head(verdict: Verdict) -> Iterator[tuple[str, object]]:
    yield "do", ", then ".join(verdict.steps) or verdict.action
    if verdict.hints:
        yield "hints", list(verdict.hints)
    yield "class", f"{verdict.klass} ({verdict.kind}), confidence {verdict.confidence:.2f}"
    yield "culprits", list(_culprits(verdict)) or "nobody is named"
    if verdict.cascade:
        yield "waiting", f"{len(verdict.cascade)} others: {ranks_in_words(verdict.cascade)}"
    if verdict.seen.times:
        last = f", last fix: {verdict.seen.last_action}" if verdict.seen.last_action else ""
        yield "seen", f"{verdict.seen.times} times before on {', '.join(verdict.seen.nodes) or 'unknown nodes'}{last}"


def _culprits(verdict: Verdict) -> Iterator[str]:
    them = verdict.culprits
    if them.ranks:
        yield ranks_in_words(them.ranks)
    for title, names in (
        ("nodes", them.nodes),
        ("GPUs", tuple(map(name, them.gpus))),
        ("ports", them.links),
        ("groups", them.groups),
    ):
        if names:
            yield f"{title}: {', '.join(names[:16])}{f' and {len(names) - 16} more' if len(names) > 16 else ''}"
