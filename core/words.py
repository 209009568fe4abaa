"""Texts from elsewhere, made fit for a line of ours: nobody forges a log line or moves a cursor with a file name."""

from typing import Final

_YEAR_10000: Final = 253_402_300_799.0


def printable(text: object, limit: int = 300) -> str:
    """`text` with everything unprintable escaped, at most `limit` characters."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(text)[:limit])
    return shown[:limit]


def utc(at: float) -> str:
    """UTC seconds as RFC 3339 writes them, with milliseconds; the epoch for what no four-digit year holds."""
    millis = round(at * 1000) if 0 <= at < _YEAR_10000 else 0
    days, rest = divmod(millis, 86_400_000)
    year, month, day = _civil(days)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"{year:04d}-{month:02d}-{day:02d}T{hours:02d}:{minutes:02d}:{rest // 1000:02d}.{rest % 1000:03d}Z"


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a count of days since 1970-01-01, by years that begin in March: leap days come last."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, day


def size(number: int) -> str:
    """Bytes for people, in powers of 1000."""
    if number < 1000:
        return f"{number} B"
    value = float(number)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.5:
            return f"{value:.3g} {unit}"
    return f"{value:.4g} TB"


def span(seconds: float) -> str:
    """A length of time, roughly: 9.5 s, 90 s, 5 min, 3 h, 2 d."""
    for size_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
