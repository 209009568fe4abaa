"""`rankpulse up`: etcd, monitor and agent on one machine, for trying out. Ctrl-C ends all of them."""

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import typer

from rankpulse.cli import quick_stack
from rankpulse.cli.failing import Failed
from rankpulse.cli.quick_stack import Part
from rankpulse.core.addresses import parse_endpoint
from rankpulse.core.settings import BadSettings, Settings
from rankpulse.drills.children import die_with_parent

GRACE_S: Final = 8.0

HINT: Final = """\
etcd, a monitor and an agent are up; the page for people: {url}/  (for programs: {url}/state {url}/metrics)

In your training script:        from rankpulse.trainer import attach
                                pulse = attach()            # counts optimizer steps by itself
Start it{run_dir}:
    rankpulse run --nproc-per-node 2 --max-restarts 3 train.py
Then, in another terminal:
{export}    rankpulse status
    rankpulse explain last          # after you killed a worker
    rankpulse arm --reason trying   # until then it only observes, and orders no restart
{beside}
Ctrl-C stops all of it, and this etcd is gone with all that it knew. Jobs go on.
"""


def run(settings: Settings, config: str | None, beside: Sequence[str] = ()) -> int:
    """Run until Ctrl-C or until a part ends. `beside`: what else is wanted, of `quick_stack.KNOWN`.

    Raises `StoreError` when there is no etcd to start, `Failed` when there is no such program, and `BadSettings` when
    the token file cannot serve: before anything is started, for a monitor would end of it.
    """
    from rankpulse.cli.config import bad_token_file
    from rankpulse.store.embedded import EmbeddedEtcd

    if wrong := bad_token_file(settings.probe.token_file):
        raise BadSettings(wrong)
    found = quick_stack.find(beside)
    if found:
        settings = quick_stack.with_ports(settings)
    with EmbeddedEtcd(port=asked_for(settings)) as etcd:
        # in etcd's folder: it goes with it, also when we are killed
        others = quick_stack.parts(found, settings, etcd.log_file.parent / "beside") if found else []
        return asyncio.run(_run(settings, config, etcd.endpoint, others))


def asked_for(settings: Settings) -> int | None:
    """The port of this machine at which all commands look for etcd as things are configured; None: not on this one."""
    (first, *others), store = settings.store.endpoints, settings.store
    where = parse_endpoint(first, tls=bool(store.ca_file or store.cert_file))
    plain = not (others or where.tls or store.user)
    return where.port if plain and where.host in ("127.0.0.1", "localhost") else None


async def _run(settings: Settings, config: str | None, endpoint: str, others: Sequence[Part]) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    lines = {name: _ours(arguments(name, settings, config, endpoint)) for name in ("monitor", "agent")}
    lines |= {other.name: other.argv for other in others}
    parts: dict[str, asyncio.subprocess.Process] = {}
    try:
        for name, argv in lines.items():
            parts[name] = await _start(argv)
        typer.echo(what_next(settings, endpoint, others))
        return await _until_stopped(parts, stop)
    finally:
        await _end(list(parts.values()))


async def _until_stopped(parts: Mapping[str, asyncio.subprocess.Process], stop: asyncio.Event) -> int:
    waits = {asyncio.ensure_future(part.wait()): name for name, part in parts.items()}
    stopped = asyncio.ensure_future(stop.wait())
    done, _ = await asyncio.wait([*waits, stopped], return_when=asyncio.FIRST_COMPLETED)
    ended = [waits[task] for task in waits if task in done]
    if ended and not stop.is_set():
        raise Failed(f"the {ended[0]} ended (exit code {parts[ended[0]].returncode}); what it said is above")
    return 0


def what_next(settings: Settings, endpoint: str, others: Sequence[Part] = ()) -> str:
    """What a person does now."""
    run_dir = f" (with RANKPULSE_DIR={settings.agent.run_dir})" if settings.agent.run_dir else ""
    url = f"{'https' if settings.http.cert_file else 'http'}://{settings.monitor.listen}"
    beside = "".join(f"\n{other.name}: {other.url}" for other in others) + "\n" if others else ""
    return HINT.format(url=url, export=_export(settings, endpoint), run_dir=run_dir, beside=beside)


def _export(settings: Settings, endpoint: str) -> str:
    """What the other terminal must be told; nothing where its commands look in the right place by themselves."""
    said = {"RANKPULSE_STORE": endpoint, "RANKPULSE_CLUSTER": settings.cluster}
    usual = Settings()
    needed = endpoint not in usual.store.endpoints or settings.cluster != usual.cluster
    return f"    export {' '.join(f'{name}={value}' for name, value in said.items())}\n" if needed else ""


def arguments(part: str, settings: Settings, config: str | None, endpoint: str) -> list[str]:
    """The command line of a part, which gives it these settings."""
    said = [part, "--store", endpoint, "--cluster", settings.cluster, "--preset", settings.preset]
    said += ["--config", config] if config else []
    if part == "monitor":
        return [*said, "--listen", settings.monitor.listen]
    said += ["--node", settings.agent.node] if settings.agent.node else []
    said += ["--run-dir", settings.agent.run_dir] if settings.agent.run_dir else []
    return [*said, "--listen", settings.agent.listen]


def _ours(args: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "rankpulse.cli.main", *args]


async def _start(argv: Sequence[str]) -> asyncio.subprocess.Process:
    # a session of its own: Ctrl-C reaches us alone, and we end the parts in order
    return await asyncio.create_subprocess_exec(*die_with_parent(argv), start_new_session=True)


async def _end(parts: Sequence[asyncio.subprocess.Process]) -> None:
    for part in parts:
        with suppress(ProcessLookupError):
            part.terminate()
    try:
        async with asyncio.timeout(GRACE_S):
            await asyncio.gather(*(part.wait() for part in parts))
    except TimeoutError:
        for part in parts:
            with suppress(ProcessLookupError):
                part.kill()
