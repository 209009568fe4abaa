"""What of a ledger's past does not come back one by one: its sums without the entries and days that do.

An export that was begun late knows of the time before it only what the sums of that time say. They reach further now,
over entries that were exported each by itself: who gave back both would count those twice, and who left the sums out
would lose what is in no other line.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from rankpulse.core.ledger_sums import summed
from rankpulse.core.records import LedgerDay, LedgerEntry, LedgerPast, Record

LEAST_S: Final = 1.0  # sums are rounded: less is nothing


def rest(past: LedgerPast, each: Mapping[str, Record], *, alone: bool) -> LedgerPast | None:
    """`each`: all records that come one by one, by key. None: they leave nothing of it.

    `alone`: there are no other sums that could count the same ones; else only sums that count none of them are taken.
    """
    named = {key.rsplit("/", 1)[-1]: one for key, one in each.items()}
    entries = [one for name, one in named.items() if isinstance(one, LedgerEntry) and name <= past.entries_upto]
    days = [one for one in named.values() if isinstance(one, LedgerDay) and one.day <= past.days_upto]
    if not entries and not days:
        return past
    return _without(past, entries, days) if alone else None


def _without(past: LedgerPast, entries: list[LedgerEntry], days: list[LedgerDay]) -> LedgerPast | None:
    counted = summed((), entries, days)
    failures = {name: left for name, count in past.failures.items() if (left := count - counted.failures[name]) > 0}
    seconds = {
        name: _left(getattr(past, name), getattr(counted, name)) for name in ("node_s", "gpu_s", "run_s", "unseen_s")
    }
    lost = {
        which: {cause: rest_s for cause, s in getattr(past, which).items() if (rest_s := _left(s, taken[cause]))}
        for which, taken in (("lost_s", counted.lost_s), ("lost_gpu_s", counted.lost_gpu_s))
    }
    if not failures and not any(seconds.values()) and not any(lost.values()):
        return None
    return msgspec.structs.replace(past, entries_upto="", days_upto="", failures=failures, **seconds, **lost)


def _left(whole_s: float, taken_s: float) -> float:
    return whole_s - taken_s if whole_s - taken_s >= LEAST_S else 0.0
