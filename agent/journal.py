"""The kernel's log as journald keeps it: for where /dev/kmsg may not be read."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rankpulse.agent import children
from rankpulse.core.kernel_prefix import Framed, of_journal

COMMAND: Final = ("journalctl", "-k", "-o", "json", "--no-pager", "--follow")
REFUSED: Final = "journalctl ended with 1"  # what was asked for: it may not know the mark
BATCH: Final = 256
_ENTRY_MAX: Final = 1 << 18
_WAIT_S: Final = 0.2  # for more of the same burst, before it is handed on


@dataclass(slots=True)
class Journal:
    command: Sequence[str] = COMMAND

    async def follow(self, mark: str, take: Callable[[list[Framed], str], None], works: Callable[[], None]) -> str:
        """Entries after `mark` ("": all of this boot), in batches, each with its own mark. Why it ended."""
        where = (f"--after-cursor={mark}",) if mark else ("--lines=all", "--boot")
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command, *where, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, limit=_ENTRY_MAX,
            )  # fmt: skip
        except OSError as error:
            return f"journalctl: {error.strerror}"
        try:
            assert process.stdout is not None
            await self._read(process.stdout, take, works)
            return f"journalctl ended with {await process.wait()}"
        finally:
            await children.end(process)  # the journal may lie on a disk that hangs: nobody waits for that

    async def _read(
        self, out: asyncio.StreamReader, take: Callable[[list[Framed], str], None], works: Callable[[], None]
    ) -> None:
        entries: list[Framed] = []
        last = ""
        while True:
            try:
                async with asyncio.timeout(_WAIT_S if entries else None):
                    line = await out.readline()
            except TimeoutError:
                line = None
            except ValueError:  # longer than any entry of the kernel
                continue
            found = _entry(line) if line else None
            if found is not None:
                entries.append(found[0])
                last = found[1] or last
                works()
            if entries and (not line or len(entries) >= BATCH):
                take(entries, last)
                entries = []
            if line == b"":
                return


def _entry(line: bytes) -> tuple[Framed, str] | None:
    try:
        found = msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if "MESSAGE" not in found:
        return None
    mark = found.get("__CURSOR")
    return of_journal(found), mark if isinstance(mark, str) and len(mark) < 1024 else ""
