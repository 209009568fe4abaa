"""`rankpulse kmsg`: a kernel log from a file or from stdin: one object per line, or what is in it in a page."""

import codecs
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from rankpulse.cli import show
from rankpulse.cli.failing import Failed
from rankpulse.core import kernel_reading as kr
from rankpulse.core import xid_catalogue as c
from rankpulse.core.fault_advice import role, words
from rankpulse.core.fault_book import Book
from rankpulse.core.fault_groups import Incident, incidents
from rankpulse.core.faults import Fault
from rankpulse.core.kernel_digest import Digest
from rankpulse.core.kernel_log import Line, lines

CHUNK: Final = 1 << 20
LINE_MAX: Final = 64 * 1024  # characters: what is longer is cut into several
_ALWAYS: Final = ("xid", "pci_bus_id", "pid", "process_name", "gpu_uuid", "recovery_action")
_PACKED: Final = {  # how a file begins that is no text, and what reads it
    b"\x1f\x8b": "zcat FILE", b"\xfd7zXZ": "xzcat FILE", b"BZh": "bzcat FILE", b"\x28\xb5\x2f\xfd": "zstdcat FILE",
    b"LPKSHHRH": "journalctl -k --file FILE -o short-iso",
}  # fmt: skip
SHOWN: Final = 40  # incidents of each weight on a page


def run(file: str, as_json: bool) -> None:
    """Raises Failed where the file cannot be read."""
    work = every_line if as_json else page
    if file == "-":
        work(_readable(sys.stdin.buffer, "it"))  # type: ignore[arg-type]  # a buffered reader, whatever its type says
        return
    try:
        source = open(file, "rb")  # noqa: SIM115
    except OSError as error:
        raise Failed(f"cannot read {show.plain(file)}: {error.strerror}") from None
    with source:
        work(_readable(source, show.plain(file)))


def _readable(source: io.BufferedIOBase, name: str) -> io.BufferedIOBase:
    """As it is. "No fault" would be the wrong word on a log that nobody could read."""
    start = source.peek(8) if isinstance(source, io.BufferedReader) else b""  # of a pipe what is there
    for mark, reader in _PACKED.items():
        if start.startswith(mark):
            raise Failed(f"{name} is no text: {reader} | rankpulse kmsg -")
    return source


def texts(source: io.BufferedIOBase, before_waiting: Callable[[], None] = lambda: None) -> Iterator[str]:
    """The lines of a log, however long, in whatever encoding. Memory does not grow with it."""
    decode, rest = codecs.getincrementaldecoder("utf-8")("replace").decode, ""
    while chunk := source.read1(CHUNK):  # of a pipe what is there
        *whole, rest = (rest + decode(chunk)).split("\n")
        yield from whole
        while len(rest) > LINE_MAX:
            yield rest[:LINE_MAX]
            rest = rest[LINE_MAX:]
        before_waiting()
    rest += decode(b"", final=True)
    if rest:
        yield rest


def every_line(source: io.BufferedIOBase) -> None:
    encode, out = msgspec.json.Encoder().encode, sys.stdout
    for line in lines(texts(source, out.flush)):
        out.write(encode(row(line)).decode() + "\n")
    out.flush()


def row(line: Line) -> dict[str, Any]:
    """What a line says. The first keys are always there; the others where the line tells them."""
    reading = line.reading
    told = {"line_no": line.number, "kind": reading.kind, **{name: getattr(reading, name) for name in _ALWAYS}}
    action = c.IGNORE if reading.injected else kr.action(reading)  # who acts by this alone must not be led
    told |= {"action": action, "role": kr.role(reading)}
    extra = msgspec.to_builtins(reading)
    return told | {name: value for name, value in extra.items() if name not in told} | _injected(reading)


def _injected(reading: kr.Reading) -> dict[str, bool]:
    return {"injected": True} if reading.injected else {}


def page(source: io.BufferedIOBase) -> None:
    digest = Digest()
    digest.feed(texts(source))
    out = show.console()
    book, found = digest.book, incidents(digest.book.causes())
    heavy = sorted(
        (one for one in found if one.advice.action != c.IGNORE), key=lambda one: -c.weight(one.advice.action)
    )
    out.print(f"{show.plain(headline(digest, found, len(heavy)))}\n", style="bold")
    for incident in heavy[:SHOWN]:
        out.print(show.plain(title(incident, book.uuids)), style="bold", soft_wrap=True)
        for text in about(incident):
            out.print(f"  {show.plain(text)}", soft_wrap=True)
    for incident in [one for one in found if one.advice.action == c.IGNORE][:SHOWN]:
        out.print(show.plain(f"{title(incident, book.uuids)}; {_told(incident.lead)}"), soft_wrap=True)
    for text in _beyond(len(heavy), len(found) - len(heavy), book):
        out.print(text, soft_wrap=True)


def _beyond(heavy: int, light: int, book: Book) -> Iterator[str]:
    left = max(0, heavy - SHOWN) + max(0, light - SHOWN)
    if left:
        yield f"and {left} more incidents: --json shows every line"
    if book.beyond:
        yield f"{book.beyond} lines told of faults beyond the {len(book.faults)} that are kept"


def headline(digest: Digest, found: list[Incident], heavy: int) -> str:
    if not found:
        return f"{_many(digest.lines, 'line')}, no fault{_unread(digest)}"
    boots = f" over {digest.book.boots} boots" if digest.book.boots > 1 else ""
    marked = f"; {digest.injected} lines written by a program (injected): not acted upon" if digest.injected else ""
    told = sum(fault.lines for fault in digest.book.faults.values())
    return (
        f"{_many(digest.lines, 'line')}{boots}, {told} of them about {_many(len(digest.book.faults), 'fault')}: "
        f"{_many(len(found), 'incident')}, {heavy} of them to act upon{marked}{_unread(digest)}"
    )


def _unread(digest: Digest) -> str:
    """Programs that quote a driver, or a log of several machines: who looks for a lost GPU must hear of it."""
    if not digest.quoted:
        return ""
    return f"; {_many(digest.quoted, 'line')} with what looks like an Xid, not read: not the kernel's, or broken"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def title(incident: Incident, uuids: dict[str, str]) -> str:
    lead = incident.lead
    where = lead.key.where or "this machine"
    uuid = f" ({uuids[where]})" if where in uuids else ""
    marked = " [injected]" if lead.key.injected else ""
    return f"{where}{uuid}: {words(lead)}{marked}"


def about(incident: Incident) -> Iterator[str]:
    todo = incident.advice
    yield f"do: {_action(incident)}{f' ({todo.why})' if todo.why else ''}"
    yield _told(incident.lead)
    if (code := incident.lead.xid) is not None:
        yield f"then: {c.of(code).followup}"
    for other in incident.others:
        yield f"with it: {other.key.where or 'this machine'}: {words(other)}; {_told(other)}"
    if incident.lead.echoes:
        yield "echoes: " + ", ".join(f"{name} ({n} lines)" for name, n in incident.lead.echoes.most_common(8))


def _action(incident: Incident) -> str:
    if incident.lead.key.injected:
        return "nothing: somebody wrote it there; `do` as if it were real: " + incident.advice.action
    if incident.advice.action == c.CONTACT_VENDOR and incident.lead.xid is None and incident.lead.reading.sxid is None:
        return "drain the node and have it looked at"
    return c.ACTION_WORDS[incident.advice.action]


def _told(fault: Fault) -> str:
    times = f"{fault.occurrences} occurrences" if fault.occurrences > 1 else "once"
    told = f"{fault.count} line{'s' * (fault.count > 1)}, {times}"
    when = f", {_at(fault.clock, fault.first)} to {_at(fault.clock, fault.last)}" if fault.first is not None else ""
    who = f", told in the name of {', '.join(fault.processes)}" if fault.processes else ""
    return f"{told}{when}{who}; {role(fault)}"


def _at(clock: str, at: float | None) -> str:
    if at is None:
        return "?"
    return (
        show.clock_time(at)
        if clock == "wall"
        else f"{at % 86400:.0f} s of the day"
        if clock == "yearless"
        else f"{at:.3f} s"
    )
