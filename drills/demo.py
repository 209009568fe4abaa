"""`rankpulse demo`: a real job on this machine lives through the faults, and each answer is held against the truth."""

import asyncio
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rankpulse.drills.ending import ending
from rankpulse.drills.ending import keep as write
from rankpulse.drills.gpu_lost import BELIEVED, gpu
from rankpulse.drills.job import Job
from rankpulse.drills.leaving import cordon, node
from rankpulse.drills.pager import Pager
from rankpulse.drills.repeating import repeat
from rankpulse.drills.resumes import losses
from rankpulse.drills.scenes import Result, Show, crash, finish, jitter, stop
from rankpulse.drills.screen import Screen
from rankpulse.drills.stage import NO_STRIKES, NODES, Stage
from rankpulse.drills.together import hang, weather
from rankpulse.store.api import StoreError

# A standstill of a moment calls nobody: a program that has raised takes seconds to end, and its peers wait for it.
A_MOMENT = "hang_act_s = 8.0\n"
SCENES: dict[str, tuple[Callable[[Show], Awaitable[Result]], ...]] = {
    "jitter": (jitter,),
    "crash": (crash,),
    "hang": (hang,),
    "weather": (weather,),
    "stop": (stop, finish),
    "node": (node,),
    "cordon": (cordon,),
    "repeat": (repeat,),
}
BY_NAME: dict[str, tuple[Callable[[Show], Awaitable[Result]], ...]] = {"gpu": (gpu,)}  # only when it is asked for


def run(
    names: list[str], as_json: bool = False, keep: str | None = None, seed: int | None = None, secure: bool = False
) -> int:
    """Play the named faults (all by default). Returns the exit code: 0 when every answer was right, else 1.

    With `as_json` stdout gets one object at the end; what happens meanwhile goes to stderr. `keep`: a directory for
    the logs, which are removed otherwise when all went well. `secure`: as `Stage` has it.
    """
    unknown = [name for name in names if name not in SCENES | BY_NAME]
    if unknown:
        print(f"no fault named {', '.join(unknown)}: choose among {', '.join(SCENES | BY_NAME)}", file=sys.stderr)
        return 2
    missing = _missing()
    if missing:
        print(missing, file=sys.stderr)
        return 2
    directory = Path(keep) if keep else Path(tempfile.mkdtemp(prefix="rankpulse-demo-"))
    if directory.is_dir() and any(directory.iterdir()):
        print(f"{directory} is not empty: name a directory of its own for --keep", file=sys.stderr)
        return 2
    try:
        directory.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(_play(in_order(names), directory, as_json, seed, secure))
    except (StoreError, OSError, RuntimeError) as error:
        print(f"the demo could not be played: {error}\nlogs: {directory}", file=sys.stderr)
        return 1
    if as_json:
        print(json.dumps(report))
    if report["ok"] and not keep:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        print(f"logs: {directory}", file=sys.stderr)
    return 0 if report["ok"] else 1


def in_order(names: list[str]) -> list[str]:
    """What is played when these are asked for: each once, and `stop` ends the job of those before it."""
    return [*(name for name in SCENES if name in names or not names), *(name for name in BY_NAME if name in names)]


def _missing() -> str:
    """What the demo needs and this interpreter lacks, as a sentence, or nothing."""
    from importlib.util import find_spec

    lacking = [name for name in ("torch", "numpy", "plotext") if find_spec(name) is None]
    if not lacking:
        return ""
    return f"the demo trains a real model and needs {', '.join(lacking)}: pip install 'rankpulse[demo,torch]'"


async def _play(names: list[str], directory: Path, quiet: bool, seed: int | None, secure: bool) -> dict[str, Any]:
    seed = seed if seed is not None else random.SystemRandom().randrange(1 << 30)
    with Screen(names, quiet=quiet) as screen:
        screen.tell(f"seed {seed}; logs in {directory}")
        screen.tell("reference: the bare job, without rankpulse, from launch to the first step of every rank")
        reference = await asyncio.to_thread(reference_start, directory / "bare")
        screen.reference(reference)
        locked = " with TLS, client certificates and users: tokens of 5 s, certificates of 7 s" if secure else ""
        screen.tell(f"starting etcd{locked}; two agents behind a proxy, and a monitor")
        settings = NO_STRIKES + A_MOMENT + BELIEVED
        async with Pager() as pager, Stage(directory, monitor=settings + pager.target, secure=secure) as stage:
            show = Show(stage, directory, random.Random(seed), screen.tell, pager)  # noqa: S311
            watching = asyncio.create_task(screen.watch(stage.witness))
            try:
                results = await _scenes(show, names, screen)
            finally:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
                await show.alone()
            renewed = stage.fortress.renewed if stage.fortress else 0
        end = ending(losses(show.trained), results) if show.trained is not None else None
        screen.results(results, reference, end)
    if end is not None:
        write(end, directory)
    return {
        "ok": all(result.correct for result in results) and not (end and end.wrong),
        "faults": [result.plain() for result in results],
        "curve": end.plain() if end else None,
        "reference_start_s": round(reference, 3),
        "seed": seed,
        "certificates_renewed": renewed,
    }


async def _scenes(show: Show, names: list[str], screen: Screen) -> list[Result]:
    results = []
    for name in names:
        for scene in (SCENES | BY_NAME)[name]:
            screen.begin(scene.__name__)
            try:
                result = await scene(show)
            except Exception as error:
                result = Result(scene.__name__, wrong=[f"could not be played to its end: {error}"])
            results.append(result)
            screen.end(result)
    return results


def reference_start(directory: Path) -> float:
    """Seconds from launching the bare job (same script, same torchruns, no rankpulse) to its last rank's first step."""
    nodes = {node: directory / node for node in NODES}
    args = ("--steps", "2", "--step-s", "0.01", "--bare")
    job = Job(directory, nodes, name="bare-job", train_args=args).start()
    try:
        deadline = time.monotonic() + 120.0
        while len(job.events("first_step")) < job.world_size:
            if time.monotonic() > deadline or not job.alive():
                raise RuntimeError(f"the bare job does not start on this machine:\n{job.tail()}")
            time.sleep(0.05)
        return float(max(entry["at"] for entry in job.events("first_step"))) - job.started_at
    finally:
        job.wait(30.0)
        job.end()
