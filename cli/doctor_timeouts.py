"""The hierarchy of timeouts as it stands on this machine: settings, the jobs' environment, the scheduler."""

import asyncio
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from rankpulse.agent import proc
from rankpulse.cli.doctor_check import OK, WARN, Check
from rankpulse.core import timeouts
from rankpulse.core.settings import Settings
from rankpulse.core.timeouts import Around, Limit

ASK_S: Final = 5.0
_ENVIRON_MAX: Final = 1 << 20
_SHOWN: Final = re.compile(r"^(KillWait|SlurmdTimeout)\s*=\s*(\d+)", re.MULTILINE)


async def around(given: Around) -> tuple[Around, str]:
    """`given` completed: from Slurm, and from the environment of a job of this machine, or of this shell. Whose."""
    found = await _slurm(given)
    pid, environ = next(jobs(), (0, dict(os.environ)))
    return _of(found, environ), f"the job of pid {pid}" if pid else "this shell"


def jobs() -> Iterator[tuple[int, dict[str, str]]]:
    """Workers of torchrun that run here, with their environments, as far as whoever asks may read them."""
    for pid in proc.pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                raw = file.read(_ENVIRON_MAX)
        except OSError:
            continue
        if b"TORCHELASTIC_RUN_ID=" in raw and b"LOCAL_RANK=" in raw:
            text = raw.decode("utf-8", "replace")
            yield pid, dict(part.split("=", 1) for part in text.split("\0") if "=" in part)


def _of(found: Around, environ: Mapping[str, str]) -> Around:
    """With what the environment of a trainer says; what is no number of seconds says nothing."""
    hold_s, grace_s = _seconds(environ.get("RANKPULSE_HOLD_S", "")), _seconds(environ.get("RANKPULSE_GRACE_S", ""))
    watchdog_s = _seconds(environ.get("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", ""))
    return replace(
        found,
        hold_s=found.hold_s if hold_s is None else hold_s,
        grace_s=found.grace_s if grace_s is None else grace_s,
        watchdog_s=found.watchdog_s if watchdog_s is None else watchdog_s,
    )


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


async def _slurm(given: Around) -> Around:
    """Slurm's own, where its commands are here and its controller answers. What was given by hand stays."""
    if given.kill_wait_s is not None or shutil.which("scontrol") is None:
        return replace(given, scheduler=given.scheduler or "the scheduler")
    try:
        child = await asyncio.create_subprocess_exec(
            "scontrol", "show", "config", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return given
    try:
        async with asyncio.timeout(ASK_S):
            out, _ = await child.communicate()
    except TimeoutError:
        child.kill()
        await child.wait()
        return given
    return of_slurm(out.decode("utf-8", "replace"), given)


def of_slurm(shown: str, given: Around) -> Around:
    """`shown`: what `scontrol show config` prints."""
    found = {name: float(seconds) for name, seconds in _SHOWN.findall(shown)}
    if not found:
        return given
    down_s = found.get("SlurmdTimeout") or None  # 0: never
    return replace(given, scheduler="Slurm", kill_wait_s=found.get("KillWait"), node_down_s=down_s)


def checks(settings: Settings, around: Around, whose: str) -> list[Check]:
    """One for each pair that does not hold; one that says so where all do."""
    pairs = timeouts.judged(timeouts.limits(settings, around))
    wrong = [Check("timeouts", WARN, pair.text, pair.remedy) for pair in pairs if pair.level != timeouts.OK]
    scheduler = around.scheduler if around.kill_wait_s is not None else "no scheduler known"
    return wrong or [Check("timeouts", OK, f"all {len(pairs)} pairs nest ({whose}; {scheduler})")]


def table(settings: Settings, around: Around) -> Iterator[str]:
    """All timeouts, the shortest first, as lines for people."""
    rows: list[Limit] = sorted(timeouts.limits(settings, around).values(), key=lambda limit: limit.seconds)
    for row in rows:
        yield f"{row.seconds:8g} s  {row.layer:9}  {row.what} ({row.source})"
