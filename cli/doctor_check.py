"""One finding of `rankpulse doctor`."""

from typing import NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


class Check(NamedTuple):
    """One finding. `remedy` is empty when there is nothing to do."""

    name: str
    level: str  # ok | warn | fail
    text: str
    remedy: str = ""
