"""What the shell of a monitor knows about itself, for its page."""

from typing import NamedTuple


class About(NamedTuple):
    """One moment of it."""

    monitor: str
    version: str = ""
    leads: bool = False
    trouble: str = ""  # why nothing may be concluded, "" while it sees
    store_version: str = ""
    alarms: tuple[str, ...] = ()
    store_error: str = ""
    lag_s: float = 0.0  # how late the loop turned last
    grafana: str = ""  # where Grafana is, "" where nobody said
    runbooks: str = ""  # where the runbooks are served, "" where nobody said
