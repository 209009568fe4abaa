"""Looks at what may hang, through a child that is given up when it takes too long, and never waited for."""

import asyncio
import contextlib
import json
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from rankpulse.core import preflight
from rankpulse.core.host_rules import Port
from rankpulse.core.preflight import FAIL, OK, UNKNOWN, Finding, Gpus, Holder, Space
from rankpulse.core.settings import PreflightSettings
from rankpulse.core.words import printable

CHILD: Final = (sys.executable, "-P", "-m", "rankpulse.agent.preflight_child")
COLLECTIVE: Final = (sys.executable, "-P", "-m", "rankpulse.agent.preflight_collective")
DEVICES: Final = r"/dev/nvidia\d+"
_LINE_MAX: Final = 4 << 20
_DIES_S: Final = 1.0
_HANGS: Final = {  # what does not answer, as a finding
    "dirs": ("checkpoint directory", FAIL, "its file system does not answer", "look at the mount"),
    "ports": ("network", FAIL, "a network card does not answer", "see the kernel's log for its driver"),
    "holders": ("leftovers", UNKNOWN, "a process of this node holds up who looks at it", "see `ps` for state D"),
    "gpus": ("gpu", FAIL, "the GPU driver does not answer", "see the kernel's log for Xid 119; reboot"),
    "collective": ("collective", FAIL, "a sum over two GPUs does not end", "try NCCL_P2P_DISABLE=1, then nccl-tests"),
}
T = TypeVar("T")


class Asked(NamedTuple):
    """Whose leftovers are looked for: owner and run. Run "": nobody's."""

    uid: int = -1
    run_uid: str = ""


class Seen(NamedTuple):
    """What came of a look. `holders`: processes of the run that have a GPU open."""

    findings: tuple[Finding, ...]
    holders: tuple[Holder, ...] = ()
    ports: tuple[Port, ...] = ()


class _Ran(NamedTuple):
    """What a child said, by its first words, and its exit code; None: it was given up."""

    told: Mapping[str, Any]
    code: int | None
    process: Process | None


async def end_child(process: Process) -> None:
    """Kill it if it is there still. One that hangs in the kernel dies when the kernel lets it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DIES_S):
                await process.wait()


@dataclass(slots=True)
class Look:
    """`child`, `collective`: the commands; `devices`: which open files mean that a process holds a GPU; `end`: how a
    child that has taken too long is ended, if that can be done."""

    settings: PreflightSettings
    child: Sequence[str] = CHILD
    collective: Sequence[str] = COLLECTIVE
    devices: str = DEVICES
    ports: str = ""  # a directory of network cards to look at, too
    gpus: bool = True  # whether GPUs are looked at, where there are any
    end: Callable[[Process], Awaitable[None]] = end_child
    _stuck: dict[str, Process] = field(default_factory=dict)  # by what hangs: given up, killed, and there still
    _hung: tuple[Finding, float] | None = None  # what did not answer, and until when that answers others, too
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def needed(self) -> bool:
        """Whether there is anything to look at that may hang. Looks at names only."""
        return bool(self.settings.checkpoint_dir) or self._has_gpus()

    def _has_gpus(self) -> bool:
        return self.gpus and bool(self.settings.gpus or self.settings.collective or _there(self.devices))

    async def at(self, asked: Asked) -> Seen:
        """One look. Raises nothing; takes no longer than the settings say."""
        async with self._lock:  # one after the other: two that hang would be no wiser
            stuck = [self._hangs(what) for what, child in self._stuck.items() if child.returncode is None]
            if stuck:
                return Seen(tuple(stuck))
            self._stuck.clear()
            if self._hung is not None and self._now() < self._hung[1]:
                return Seen((self._hung[0],))
            seen = await self._look(asked)
            if self.settings.collective and not preflight.refusal(seen.findings):
                seen = seen._replace(findings=(*seen.findings, await self._add_up()))
            return seen

    async def _look(self, asked: Asked) -> Seen:
        wanted: dict[str, Any] = {}
        if self.settings.checkpoint_dir:
            wanted["dirs"] = [self.settings.checkpoint_dir]
        if self.ports:
            wanted["ports"] = self.ports
        if asked.run_uid:
            wanted["holders"] = [asked.uid, asked.run_uid, self.devices]
        if self._has_gpus():
            wanted["gpus"] = True
        ran = await self._run([*self.child, json.dumps(wanted)], self.settings.look_timeout_s)
        findings: list[Finding] = []
        for what in wanted:
            if what not in ran.told:
                findings.append(self._missing(what, ran))
                break  # what comes after it was not reached
            findings += self._of(what, ran.told[what])
        holders = _as(tuple[Holder, ...], ran.told.get("holders", ())) or ()
        return Seen(tuple(findings), holders, _as(tuple[Port, ...], ran.told.get("ports", ())) or ())

    async def _add_up(self) -> Finding:
        ran = await self._run(self.collective, self.settings.collective_timeout_s)
        said = next(((level, str(ran.told[level])) for level in (OK, UNKNOWN, FAIL) if level in ran.told), None)
        if said is None:
            return self._missing("collective", ran)
        remedy = "compare with nccl-tests" if said[0] == FAIL else ""
        return Finding("collective", said[0], printable(said[1]), remedy)

    def _of(self, what: str, told: Any) -> list[Finding]:
        if what == "dirs":
            spaces = _as(tuple[Space, ...], told) or ()
            name = _HANGS[what][0]
            return [preflight.of_space(name, space, self.settings.checkpoint_free_mb) for space in spaces]
        if what == "gpus":
            gpus = _as(Gpus, told)
            return preflight.of_gpus(gpus, self.settings.gpus) if gpus else [_unable(what, "it said nothing sound")]
        return []

    def _missing(self, what: str, ran: _Ran) -> Finding:
        if ran.code is not None:
            return _unable(what, f"the process that looks ended with code {ran.code}")
        if ran.process is not None and ran.process.returncode is None:
            self._stuck[what] = ran.process
        found = self._hangs(what)
        if found.level == FAIL:  # many may have asked at once: they do not all wait for the same silence
            self._hung = (found, self._now() + self.settings.retry_s)
        return found

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _hangs(self, what: str) -> Finding:
        return Finding(*_HANGS[what])

    async def _run(self, command: Sequence[str], timeout_s: float) -> _Ran:
        told: dict[str, Any] = {}
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, limit=_LINE_MAX
            )
        except OSError as error:
            return _Ran(told, error.errno or -1, None)
        try:
            async with asyncio.timeout(timeout_s):
                await _hear(process, told)
                return _Ran(told, await process.wait(), process)
        except TimeoutError:
            return _Ran(told, None, process)
        finally:
            await self.end(process)


async def _hear(process: Process, told: dict[str, Any]) -> None:
    assert process.stdout
    async for line in process.stdout:
        with contextlib.suppress(ValueError):
            said = msgspec.json.decode(line)
            told |= said if isinstance(said, dict) else {}


def _there(devices: str) -> bool:
    """Whether this machine has such a device. Looks at names only."""
    with contextlib.suppress(OSError):
        return any(re.fullmatch(devices, f"/dev/{name}") for name in os.listdir("/dev"))
    return False


def _unable(what: str, why: str) -> Finding:
    return Finding(_HANGS[what][0], UNKNOWN, f"could not be looked at: {why}")


def _as(kind: type[T], said: Any) -> T | None:
    try:
        return msgspec.convert(said, kind)
    except (msgspec.ValidationError, RecursionError):
        return None
