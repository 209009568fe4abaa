"""The door of an HTTP port as it stands without any settings, for tests of what is behind it."""

from rankpulse.core.settings import HttpSettings
from rankpulse.monitor.page.serve import HEADERS, READ_ONLY
from rankpulse.web.door import Door


def open_door(settings: HttpSettings | None = None, said: list[str] | None = None) -> Door:
    """`said`: where its log lines go."""
    lines = said if said is not None else []
    return Door(settings or HttpSettings(), lambda _level, text: lines.append(text), hint=READ_ONLY, headers=HEADERS)
