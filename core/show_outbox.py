"""The outbox as JSON values: how each target stands, and what it was not told. Reads only."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from rankpulse.core.fold_outbox import DEAD, DELIVERED, PENDING, Letter
from rankpulse.core.records import Outgoing

if TYPE_CHECKING:
    from rankpulse.core.engine import Engine

LETTERS_MAX = 100


def outbox(engine: "Engine", now: float) -> dict[str, Any]:
    """Targets that are configured, and those of which something lies in the store. Tests by hand are not counted."""
    folder = engine.folder.outbox
    count = Counter((letter.target, one.state) for letter, one in folder.stored.items() if one.incident)
    kinds = {target.name: target.kind for target in engine.settings.webhook.targets}
    names = sorted(kinds.keys() | {name for name, _ in count})
    left = [(letter, one) for letter, one in folder.stored.items() if one.state in (PENDING, DEAD)]
    return {
        "targets": {
            name: {
                "kind": kinds.get(name, ""),
                "waiting": count[name, PENDING],
                "dead": count[name, DEAD],
                "delivered": count[name, DELIVERED],
            }
            for name in names
        },
        "letters": [_letter(engine, letter, one, now) for letter, one in left[:LETTERS_MAX]],
    }


def _letter(engine: "Engine", letter: Letter, outgoing: Outgoing, now: float) -> dict[str, Any]:
    folder = engine.folder.outbox
    waits_s = max(folder.due_at(letter, outgoing) - now, 0.0)
    return {
        "event": letter.event,
        "target": letter.target,
        "state": outgoing.state,
        "attempts": outgoing.attempts,
        "under_way": letter in folder.under_way,
        "next_in_s": round(waits_s, 3) if outgoing.state == PENDING else None,
        "last_error": outgoing.last_error,
        "first_at": outgoing.first_at,
    }
