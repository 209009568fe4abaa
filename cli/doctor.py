"""`rankpulse doctor`: what works on this machine, what does not, and the remedy for each."""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from rankpulse.cli import books, doctor_node, doctor_timeouts, live, show, status
from rankpulse.cli.doctor_check import FAIL, OK, WARN, Check
from rankpulse.core.keys import Keys
from rankpulse.core.records import Beat, Leader, NodeState
from rankpulse.core.settings import Settings, run_dir
from rankpulse.core.store_care import roles_leak
from rankpulse.core.timeouts import Around
from rankpulse.store.api import Store, StoreError

SKEW_S: Final = 5.0
TORCH_S: Final = 60.0
SHARE: Final = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
# run in a process of its own: torch takes seconds and may break in ways that are not ours
_TORCH: Final = """
import json, sys
out = {"version": "", "missing": []}
try:
    import torch
    out["version"] = torch.__version__
    import torch.optim.optimizer as o
    if not hasattr(o, "register_optimizer_step_post_hook"):
        out["missing"].append("register_optimizer_step_post_hook")
    try:
        from torch._C import _distributed_c10d as d
    except ImportError:
        d = None
    out["missing"] += [name for name in ("_WorkerServer", "_register_handler") if not hasattr(d, name)]
except ImportError as error:
    out["error"] = str(error)
print(json.dumps(out))
"""


async def run(settings: Settings, given: Around) -> AsyncIterator[Check]:
    """All checks, each as soon as it is known. Never raises for what it checks."""
    yield Check("configuration", OK, f"cluster {settings.cluster}, preset {settings.preset}")
    async for check in _store(settings):
        yield check
    where = run_dir(settings.agent, os.environ)
    yield await _agent(settings)
    yield _shared_memory(where)
    yield doctor_node.socket(where)
    yield doctor_node.rights()
    yield doctor_node.clock()
    yield await doctor_node.gpus(settings)
    yield kernel_log(settings.gpu.kernel_log)
    around, whose = await doctor_timeouts.around(given)
    for check in doctor_timeouts.checks(settings, around, whose):
        yield check
    yield _share_variable()
    yield await _torch()


async def _store(settings: Settings) -> AsyncIterator[Check]:
    try:
        async with books.opened(settings) as store:
            found = await store.status()
            yield _version(found.version)
            if (settings.store.user or settings.store.cert_file) and (leak := roles_leak(found.version)):
                yield Check("store roles", WARN, *leak.split("; ", 1))
            yield _alarms(found.alarms, found.has_leader)
            async for check in _cluster(settings, store):
                yield check
    except StoreError as error:
        yield Check("store", FAIL, str(error), "start etcd, or name it: --store HOST:PORT or store.endpoints")


def _version(version: str) -> Check:
    parts = tuple(int(part) for part in version.split("-")[0].split(".")[:3] if part.isdecimal())
    if (3, 5, 0) <= parts <= (3, 5, 2):
        return Check(
            "store", WARN, f"etcd {version} answers, but 3.5.0 to 3.5.2 can lose consistency", "use 3.5.3 or later"
        )
    if parts < (3, 4):
        return Check("store", WARN, f"etcd {version} answers, but is older than 3.4", "use 3.5.3 or later")
    return Check("store", OK, f"etcd {version} answers")


def _alarms(alarms: tuple[str, ...], has_leader: bool) -> Check:
    from rankpulse.monitor.upkeep import REMEDY

    if alarms:
        return Check("store alarms", FAIL, ", ".join(alarms), REMEDY.get(alarms[0], "see the store's log"))
    if not has_leader:
        return Check("store alarms", FAIL, "the store has no leader", "start the other members of the etcd cluster")
    return Check("store alarms", OK, "none")


async def _cluster(settings: Settings, store: Store) -> AsyncIterator[Check]:
    known = await books.read(store, Keys(settings.cluster))
    leader = known.first(Leader)
    state, error = await live.fetch(status.monitor_url(leader, settings), settings.http) if leader else (None, "")
    yield _monitor(leader, state, error)
    if state is not None and state.nodes:
        yield looks(state.nodes)
    yield _clocks(known.of(Beat), time.time())
    yield versions(known.of(NodeState), version("rankpulse"))
    if known.refused:
        text = f"{len(known.refused)} cannot be read: {next(iter(known.refused))}"
        yield Check("records", WARN, text, "`rankpulse status` says why")


def _monitor(leader: Leader | None, state: live.State | None, error: str) -> Check:
    if leader is None:
        return Check("monitor", WARN, "none leads: nothing is being diagnosed", "start `rankpulse monitor`")
    if state is None:
        return Check("monitor", WARN, f"{leader.monitor} leads, but {error}", "check monitor.listen and firewalls")
    if state.blind:
        return Check("monitor", FAIL, f"{leader.monitor} is blind: {state.blind_reason}", "see its log")
    return Check("monitor", OK, f"{leader.monitor} leads, epoch {leader.epoch}, and sees")


def looks(nodes: Mapping[str, live.Node]) -> Check:
    """Whether the leading monitor can look at every agent past the store: without that, silence tells it less."""
    name, reached = "direct looks", sum(node.look is not None and node.look.reached for node in nodes.values())
    if reached == len(nodes):
        return Check(name, OK, f"the monitor has reached all {reached} agents")
    node, look = next((n, row.look) for n, row in sorted(nodes.items()) if row.look is None or not row.look.reached)
    why = f" ({show.plain(look.detail)})" if look and look.detail else ""
    text = f"the monitor has reached {reached} of {len(nodes)} agents, and not {show.plain(node)}{why}"
    remedy = "give agents probe.listen and probe.token_file, monitors the same token, and open that port between them"
    return Check(name, WARN, text, remedy)


def versions(nodes: list[NodeState], ours: str) -> Check:
    """Agents of another version than this command: a rolling upgrade that stopped half way looks like that."""
    others = {state.node: state.agent_version for state in nodes if state.agent_version != ours}
    if not others:
        return Check("versions", OK, f"{len(nodes)} agents, all {ours} as this command")
    node, theirs = min(others.items())
    text = f"{len(others)} of {len(nodes)} agents are not {ours}: {show.plain(node)} has {show.plain(theirs)}"
    return Check("versions", WARN, text, "finish the upgrade: monitors first, then agents")


def _clocks(beats: list[Beat], now: float) -> Check:
    """Beats carry their node's UTC; one from the future shows a clock ahead. No decision reads these clocks."""
    ahead = {beat.node: beat.at - now for beat in beats if beat.at - now > SKEW_S}
    if ahead:
        node, seconds = max(ahead.items(), key=lambda item: item[1])
        return Check(
            "clock", WARN, f"{node} is {show.span(seconds)} ahead of this machine", "run NTP; only reports suffer"
        )
    return Check("clock", OK, "no node's clock is ahead of this one")


async def _agent(settings: Settings) -> Check:
    path = os.path.join(run_dir(settings.agent, os.environ), "agent.sock")
    try:
        async with asyncio.timeout(3.0):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b'{"op":"ping"}\n')
            answer: Any = json.loads(await reader.readline())
            writer.close()
    except (OSError, ValueError, TimeoutError) as error:
        why = getattr(error, "strerror", None) or str(error) or "no answer"
        return Check(
            "agent", WARN, f"none answers at {path} ({why})", "start `rankpulse agent` here if jobs run on this machine"
        )
    return Check("agent", OK, f"node {show.plain(answer.get('node', '?'))}, start {answer.get('inc', '?')}")


def _shared_memory(path: str) -> Check:
    """Slots are memory-mapped files: the run directory, or where it would be made, must take one."""
    where = path
    while not os.path.lexists(where):
        where = os.path.dirname(where) or "."
    try:
        with tempfile.TemporaryFile(dir=where) as file:
            os.posix_fallocate(file.fileno(), 0, 65536)
    except OSError as error:
        return Check(
            "run directory",
            FAIL,
            f"{where}: {error.strerror}",
            "free space there, or set agent.run_dir",
        )
    return Check("run directory", OK, f"{path} can be written" if where == path else f"{path} can be made")


def kernel_log(path: str) -> Check:
    """Whether whoever asks may read it; the agent may be somebody else."""
    if not path:
        return Check("kernel log", OK, "it is not read: gpu.kernel_log is empty")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}. XIDs are heard of through the journal or NVML alone"
        remedy = f"let the agent read it: root or CAP_SYSLOG, and in a container the host's {path}"
        return Check("kernel log", WARN, text, remedy)
    return Check("kernel log", OK, f"{path} can be read")


def _share_variable() -> Check:
    if os.environ.get(SHARE) == "1":
        return Check(SHARE, OK, "1")
    return Check(
        SHARE,
        WARN,
        "not set in this shell: with torchrun's c10d rendezvous, restarted workers read stale addresses and die again",
        f"export {SHARE}=1 where torchrun is started",
    )


async def _torch() -> Check:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _TORCH, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(TORCH_S):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return Check("torch", WARN, f"its import took longer than {TORCH_S:.0f} s", "look at this machine's disk")
    try:
        found = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        return Check("torch", WARN, "its import broke the interpreter", f"try: {sys.executable} -c 'import torch'")
    if not found["version"]:
        text = f"not in this environment ({found.get('error', '')[:100]})"
        return Check("torch", WARN, text, "fine on monitor machines; trainers need torch 2.9 or later")
    if found["missing"]:
        text = f"{found['version']} without {', '.join(found['missing'])}"
        return Check("torch", WARN, text, "use torch 2.9 or later; without them there is less evidence")
    return Check("torch", OK, f"{found['version']}, all interfaces present")
