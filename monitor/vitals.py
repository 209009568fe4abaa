"""What the monitor knows about itself: counters and the latest readings, read by metrics and pages."""

from collections import Counter
from dataclasses import dataclass, field

from rankpulse.store.api import StoreStatus


@dataclass(slots=True)
class Vitals:
    """Written by the loop and the upkeep, read by HTTP; all in one event loop, so no locks."""

    events: Counter[str] = field(default_factory=Counter)  # by kind of record
    actions: Counter[tuple[str, str]] = field(default_factory=Counter)  # by (kind, result)
    refused: int = 0
    loop_lag_s: float = 0.0
    last_turn: float | None = None  # monotonic
    listed: bool = False  # the store's content was seen at least once
    sight_lost: str = ""  # why the store cannot be seen; "" while it can
    blind_s: float = 0.0
    store: StoreStatus | None = None
    store_error: str = ""
    trouble: str = ""  # what keeps the monitor from starting, for people
