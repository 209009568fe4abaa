"""What stands before the kernel's own words in a line: stamps, levels, host names, wrappings of loggers. Total.

Only the kernel's words are believed. What a program wrote into the log keeps its own tag, and is then no kernel line;
what was written through /dev/kmsg carries a facility other than 0, and is marked as the user's.
"""

import re
from typing import Final, NamedTuple

import msgspec

KERNEL, USER = "kernel", "user"
UP, WALL, YEARLESS, STEP = "up", "wall", "yearless", "step"  # clocks; STEP: seconds since the line before
LINE_MAX: Final = 8192  # characters: more than a record of the kernel can have
_DAY_S: Final = 86_400
_MONTHS: Final = {name: n for n, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}  # noqa: SIM905
_FACILITIES: Final = "user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7]|res[0-9]"

_MON = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DOW = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_WORD = r"[^\s\[\]:]{1,12}"
_TZ = r"(?:UTC|GMT|[A-Z]{1,3}T)(?=[\s\]])"
_UPTIME = (
    r"\[\s{{0,12}}(?P<up{n}>\d{{1,12}}(?:\.\d{{1,9}})?)(?:[ ]{{0,4}}<\s{{0,9}}\d+\.\d+[ ]?>)?[ ]?\]"
    r"(?:[ ]?\[[ ]{{0,9}}[TC]\d+\])?"
)
_STAMP = rf"""(?:
      {_UPTIME.format(n=1)}
    | \[\s{{0,9}}\+(?P<step>\d{{1,9}}\.\d{{1,9}})\]
    | \[?(?:{_DOW}\ )?(?P<iso>\d{{4}}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?)\ ?
        (?:(?P<zone>[+-]\d\d:?\d\d|[+-]\d\d|Z)|{_TZ})?\]?
    | \[?(?:{_DOW},?\s{{1,2}})?(?P<mon>{_MON})\s{{0,3}}(?P<day>\d\d?)(?:\s(?P<y1>\d{{4}}),?)?\s{{1,2}}
        (?P<hms>\d\d:\d\d(?::\d\d(?:\.\d{{1,9}})?)?)
        (?:\s{_TZ})?(?:\s(?P<y2>\d{{4}}))?\]?
    | (?P<epoch>\d{{9,11}}\.\d{{1,9}})
    | \[\.\.\.\]
    | \[(?:{_WORD}\s{{1,3}}){{1,2}}\d\d?\s\d\d:\d\d:\d\d\s\d{{4}}\]     # months and days in other languages
    | {_WORD}\s\d\d?\s\d\d:\d\d:\d\d(?=\s[\w.:-]{{1,255}}\skernel:)
)"""
_PREFIX = re.compile(
    rf"""[\s\ufeff]*
    (?:(?P<prio>\d{{1,6}}),(?P<seq>\d{{1,20}}),(?P<usec>\d{{1,20}}),[^;\s]{{0,64}};\s*)?   # a record of /dev/kmsg
    (?:<(?P<pri>\d{{1,4}})>(?:1\s(?=\d{{4}}-))?\s*)?                # a raw priority, dmesg -r, syslog
    (?:(?P<kern>kern|{_FACILITIES})\s*:\s*(?:emerg|alert|crit|err|warn|notice|info|debug)\s*:\s*)?     # dmesg -x
    (?:(?P<s>{_STAMP})\s*)?
    (?:(?:[\w.:-]{{0,254}}[\w.-]\s+)?(?:kern\.\w{{1,8}}\s+)?kernel(?:\[0\])?
        (?::\s*|\ -\ -\ (?:-|\[[^\]]{{0,256}}\])\ )(?:{_UPTIME.format(n=2)}\s*)?)?
    (?:<(?P<pri2>\d{{1,4}})>)?
    """,
    re.VERBOSE | re.ASCII,
)
# what shippers of containers' logs put before all that: kubectl --prefix, docker compose, the container runtime
_SHIPPED = re.compile(
    r"\s*(?:\[pod/[^\]]{1,200}\]\s*)?(?:[\w.-]{1,64}\s+\| )?"
    r"(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+) std(?:out|err) [FP] )?",
    re.ASCII,
)
_BARE_HOST = re.compile(r"[\w.-]{1,255}\s+(?=NVRM: |nvidia-nvswitch\d+: |mlx\d_core )")
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|#033\[[0-9;]*m")
_NEWLINE = re.compile(r"#012|\\x0a|\\n(?=NVRM)|\r?\n")


class Framed(NamedTuple):
    """A line without what stood around it."""

    text: str  # the kernel's words; several lines of one message are parted by newlines
    origin: str | None = None  # None: the line does not say
    clock: str = ""
    at: float | None = None
    seq: int | None = None
    foreign: bool = False  # a log of programs says that this is not the kernel's


def strip(line: str) -> Framed:
    """Never raises."""
    line = line[:LINE_MAX]
    if "\x1b" in line or "#033" in line:
        line = _ANSI.sub("", line)
    if line.startswith("{"):
        return _wrapped(line)
    if " | " in line or " std" in line or line.startswith("[pod/"):
        line = line[shipped.end() :] if (shipped := _SHIPPED.match(line)) else line
    found = _PREFIX.match(line)
    if found is None:  # it matches the empty text, too
        return Framed(line)
    rest = line[found.end() :]
    if found["s"] is not None and (host := _BARE_HOST.match(rest)):
        rest = rest[host.end() :]
    if "#012" in rest or "\\" in rest or "\n" in rest:
        rest = _NEWLINE.sub("\n", rest)
    clock, at = _when(found)
    seq = found["seq"]
    return Framed(rest.rstrip(), _origin(found), clock, at, int(seq) if seq else None)


def _origin(found: "re.Match[str]") -> str | None:
    """The facility says who wrote: 0 is the kernel, and no program can write that."""
    number = found["prio"] or found["pri"] or found["pri2"]
    if number is not None:
        return KERNEL if int(number) >> 3 == 0 else USER
    named = found["kern"]
    return None if named is None else KERNEL if named == "kern" else USER


def _when(found: "re.Match[str]") -> tuple[str, float | None]:
    if found["usec"]:
        return UP, int(found["usec"]) / 1e6
    up = found["up1"] or found["up2"]
    if up:
        return UP, float(up)
    if found["s"] is None:
        return "", None
    if found["step"]:
        return STEP, float(found["step"])
    if found["epoch"]:
        return WALL, float(found["epoch"])
    if found["iso"]:
        return WALL, _iso(found["iso"], found["zone"])
    return _named(found) if found["mon"] else ("", None)


def _iso(text: str, zone: str | None) -> float:
    days = _days(int(text[:4]), int(text[5:7]), int(text[8:10]))
    at = days * _DAY_S + _clock(text[11:19]) + float("0." + (text[20:] or "0"))
    if zone and zone != "Z":
        minutes = int(zone[1:3]) * 60 + int(zone[3:].strip(":") or 0)
        at -= minutes * 60 if zone[0] == "+" else -minutes * 60
    return at


def _named(found: "re.Match[str]") -> tuple[str, float]:
    """Stamps of syslog have no year: they can be compared with each other, and with nothing else."""
    year = found["y1"] or found["y2"]
    days = _days(int(year or 2000), _MONTHS[found["mon"]], int(found["day"]))
    return (WALL if year else YEARLESS), days * _DAY_S + _clock(found["hms"])


def _clock(text: str) -> float:
    hours, minutes, *seconds = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + (float(seconds[0]) if seconds else 0.0)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970, by the calendar that repeats every 400 years; a day that does not exist counts on."""
    year -= month <= 2
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 719_469


def _wrapped(line: str) -> Framed:
    """One JSON object per line: `journalctl -o json`, or a container's log."""
    try:
        found = msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Framed(line)
    if "MESSAGE" in found:
        return of_journal(found)
    inner = found.get("log", found.get("message", found.get("msg")))
    return strip(inner) if isinstance(inner, str) and not inner.startswith("{") else Framed(line)


def of_journal(found: dict[str, object]) -> Framed:
    """An entry of the journal. What did not come through the kernel's own transport is not the kernel's."""
    text = _message(found["MESSAGE"])
    transport = found.get("_TRANSPORT", found.get("SYSLOG_IDENTIFIER", KERNEL))
    if transport != KERNEL:
        return Framed(text, USER, foreign=True)
    facility = str(found.get("SYSLOG_FACILITY", "0"))
    at = _micros(found.get("_SOURCE_MONOTONIC_TIMESTAMP"))
    origin = KERNEL if facility == "0" else USER
    return Framed(_NEWLINE.sub("\n", text).strip(), origin, UP if at is not None else "", at)


def _message(value: object) -> str:
    """The journal writes what is no UTF-8 as an array of bytes."""
    if isinstance(value, list):
        numbers = [n for n in value[:LINE_MAX] if isinstance(n, int) and 0 <= n < 256]
        return bytes(numbers).decode("utf-8", "replace")
    return value[:LINE_MAX] if isinstance(value, str) else ""


def _micros(value: object) -> float | None:
    text = str(value)
    return int(text) / 1e6 if text.isascii() and text.isdigit() and len(text) < 20 else None
