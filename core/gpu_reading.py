"""What the process that calls NVML says, line by line, as values: parsed once, totally, with limits."""

import re
from typing import Final

import msgspec

from rankpulse.core.words import printable

LINE_MAX: Final = 1 << 18
NO_PYNVML: Final = -1
_TEXT_MAX: Final = 200
_BUS: Final = re.compile(r"(?:0000)?([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?")


class Identity(msgspec.Struct, frozen=True):
    """Which board it is. Indices may change when the driver is loaded anew; the UUID does not."""

    uuid: str = ""
    name: str = ""
    index: int = -1
    minor: int = -1


class Said(msgspec.Struct, frozen=True):
    """One line. Which fields are set says what kind it is; a value that is not there is not known, and never zero."""

    begin: str = ""  # what is touched next: init | events | a bus
    bus: str = ""
    fatal: int | None = None  # NVML as a whole answers no more
    failed: int | None = None  # this GPU does not answer
    text: str = ""
    took_s: float = 0.0
    slow: bool = False  # what is asked for less often was asked for, too
    values: dict[str, float] | None = None
    links: tuple[dict[str, float], ...] | None = None
    unknown: dict[str, int] | None = None  # NVML's code by what is not told
    slowest: tuple[str, float] = ("", 0.0)
    identity: Identity | None = None
    processes: tuple[tuple[int, int], ...] | None = None  # pid and bytes
    driver: str | None = None
    library: str = ""
    buses: tuple[str, ...] | None = None
    events: int | None = None  # the kinds that are heard of, 0: none
    events_lost: int | None = None
    event: int | None = None  # a kind of event,
    data: int = 0  # and of an Xid its number
    times: int = 1  # as often as it came in a moment
    instances: tuple[int | None, int | None] = (None, None)


_decoder = msgspec.json.Decoder(Said)


def parse(line: bytes) -> Said | None:
    """None: it is none."""
    if len(line) > LINE_MAX:
        return None
    try:
        said = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    bus = bus_id(said.bus) if said.bus else ""
    begin = bus_id(said.begin) or said.begin
    return msgspec.structs.replace(said, bus=bus, begin=printable(begin, 40), text=printable(said.text, _TEXT_MAX))


def bus_id(text: str) -> str:
    """`dddd:bb:dd` as the kernel's lines have it: without the function, in lower case; "" when it is no address.

    NVML writes eight digits for the domain; domains beyond four are kept.
    """
    found = _BUS.fullmatch(text.strip().lower())
    return f"{found[1]}:{found[2]}:{found[3]}" if found else ""
