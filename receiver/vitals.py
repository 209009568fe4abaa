"""What the receiver counts about itself, for its metrics and its log."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Vitals:
    requests: Counter[str] = field(default_factory=Counter)  # by status
    refused: Counter[str] = field(default_factory=Counter)  # signatures, by what was wrong with them
    events: Counter[str] = field(default_factory=Counter)  # verified, by what became of them
    actions: Counter[tuple[str, ...]] = field(default_factory=Counter)  # by actuator and end
    dropped: int = 0  # connections closed for a new one, or for taking too long
    last_done: float | None = None  # UTC seconds
    trouble: str = ""  # why events cannot be taken at present, or ""
