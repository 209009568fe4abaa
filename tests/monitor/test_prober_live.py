"""Direct looks at real agents: running, stopped, killed, and on a machine that is switched off."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from probe_bench import Lookout
from support import eventually, eventually_sync

from rankpulse.core import codec
from rankpulse.core.events import ACCEPTED, ANSWERED, REFUSED, SILENT, UNABLE, Probed
from rankpulse.core.keys import Keys
from rankpulse.core.records import NodeState
from rankpulse.core.settings import StoreSettings
from rankpulse.drills.children import Child, rankpulse
from rankpulse.monitor.main import boot_id
from rankpulse.store.api import Store
from rankpulse.store.etcd import open_store

pytestmark = pytest.mark.live
TOKEN, NEXT = "a token that is long enough", "the token that follows it"


@pytest.fixture
async def store(etcd: str) -> AsyncIterator[Store]:
    store = await open_store(StoreSettings(endpoints=(etcd,)))
    yield store
    await store.close()


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rp-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


class Agent:
    """A real agent with a token, and what the store says of it."""

    def __init__(self, directory: Path, etcd: str, cluster: str, store: Store) -> None:
        self.store, self.keys, self.token = store, Keys(cluster), directory / "token"
        self.tell(TOKEN)
        config = directory / "agent.toml"
        config.write_text(
            f'cluster = "{cluster}"\npreset = "drill"\n[store]\nendpoints = ["{etcd}"]\n'
            f'[agent]\nnode = "n1"\nrun_dir = "{directory}"\nlisten = ""\n[probe]\ntoken_file = "{self.token}"\n'
        )
        self.child = Child("agent", rankpulse("agent", "--config", str(config)), log=directory / "agent.log").start()

    def tell(self, *tokens: str) -> None:
        fresh = self.token.with_suffix(".new")
        fresh.write_text("\n".join(tokens))
        fresh.chmod(0o600)
        fresh.replace(self.token)

    async def state(self) -> NodeState | None:
        item = await self.store.get(self.keys.state("n1"))
        return codec.decode(NodeState, item.value) if item else None


@pytest.fixture
def agent(directory: Path, etcd: str, cluster: str, store: Store) -> Iterator[Agent]:
    made = Agent(directory, etcd, cluster, store)
    yield made
    made.child.signal(signal.SIGCONT)
    made.child.end()


async def test_running_stopped_and_killed_are_three_facts(agent: Agent) -> None:
    state = await eventually(agent.state, 30, f"the agent's state\n{agent.child.tail()}")
    assert state.boot_id == boot_id()
    lookout = Lookout(timeout_s=0.5, token_file=str(agent.token))

    async def look() -> Probed:
        return await lookout.look(state.probe, boot_id=state.boot_id)

    lookout.prober._boot_id = boot_id()
    seen = await look()
    assert (seen.answer, seen.beat and seen.beat.node) == (ANSWERED, "n1")
    agent.child.signal(signal.SIGSTOP)
    await eventually(lambda: _stopped(agent.child.pid), 5, "the agent to be stopped")
    for _ in range(8):
        assert (await look()).answer == ACCEPTED
    agent.child.signal(signal.SIGCONT)
    await eventually(lambda: _is(look, ANSWERED), 10, "the agent to answer again")
    stranger = Lookout(timeout_s=0.5)
    stranger.prober._boot_id = boot_id()
    assert (await stranger.look(state.probe, boot_id=state.boot_id)).answer == UNABLE
    agent.child.signal(signal.SIGKILL)
    await asyncio.to_thread(agent.child.wait, 5.0)
    assert (await look()).answer == REFUSED


async def test_the_token_of_both_is_changed_while_they_run(agent: Agent, directory: Path) -> None:
    state = await eventually(agent.state, 30, f"the agent's state\n{agent.child.tail()}")
    lookout = Lookout(timeout_s=1.0, token_file=str(agent.token))
    lookout.prober._boot_id = boot_id()
    for tokens in ((TOKEN,), (TOKEN, NEXT), (NEXT, TOKEN), (NEXT,)):
        agent.tell(*tokens)

        def taken(first: str = tokens[0]) -> bool:
            return lookout.prober._tokens.first() == first.encode()

        await eventually(taken, 5, "the file to be read again")
        await eventually(
            lambda: _is(lambda: lookout.look(state.probe, boot_id=state.boot_id), ANSWERED), 5, "an answer"
        )  # fmt: skip


async def _is(look: object, answer: str) -> bool:
    return (await look()).answer == answer  # type: ignore[operator, no-any-return]


def _stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


# -- a machine of its own: a network namespace ------------------------------------------------------------------
SERVER = """
import asyncio, sys, time
from rankpulse.agent.log import Log
from rankpulse.agent.probe import ProbeServer
from rankpulse.core.records import Beat
from rankpulse.core.settings import ProbeSettings

async def main():
    beat = Beat(node="n1", inc=1, seq=2, at=0.0)
    settings = ProbeSettings(listen=sys.argv[1], token_file=sys.argv[2])
    server = ProbeServer(
        "n1", settings, lambda: beat, towards=("198.18.77.1",), name="m", clock=time.monotonic, log=Log()
    )
    await server.open()
    print(server.address, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Machine:
    """Another machine's network, with a cable to ours."""

    def __init__(self, tag: str) -> None:
        self.name, self.here = f"rp{tag}", f"rph{tag}"
        self.parts: list[subprocess.Popen[str]] = []

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def build(self) -> None:
        self.ip("netns", "add", self.name)
        self.ip("link", "add", self.here, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        self.ip("addr", "add", "198.18.77.1/30", "dev", self.here)
        self.ip("link", "set", self.here, "up")
        for words in ("addr add 198.18.77.2/30 dev eth0", "link set eth0 up", "link set lo up"):
            self.ip("-n", self.name, *words.split())

    def serve(self, token_file: Path) -> str:
        """Its agent's endpoint; the address."""
        argv = ["ip", "netns", "exec", self.name, sys.executable, "-c", SERVER, "0.0.0.0:0", str(token_file)]
        part = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.parts.append(part)
        assert part.stdout
        return part.stdout.readline().strip()

    def switch_off(self) -> None:
        """Nothing of it says anything any more; the cable is still in our socket."""
        self.ip("-n", self.name, "addr", "flush", "dev", "eth0")

    def remove(self) -> None:
        for part in self.parts:
            part.kill()
            part.communicate()
        for words in (("netns", "del", self.name), ("link", "del", self.here)):
            subprocess.run(["ip", *words], check=False, capture_output=True)


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine(str(os.getpid() % 100_000))
    try:
        made.build()
    except (OSError, subprocess.CalledProcessError) as error:
        made.remove()
        pytest.skip(f"no network namespace can be made here (needs root and iproute2): {error}")
    yield made
    made.remove()


async def test_a_machine_that_is_switched_off_is_silent(machine: Machine, directory: Path) -> None:
    token = directory / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    address = machine.serve(token)
    assert address.startswith("198.18.77.2:"), "the address on the way to the store"
    lookout = Lookout(timeout_s=1.0, token_file=str(token))
    assert (await lookout.look(address, boot_id="another machine's")).answer == ANSWERED
    machine.parts[0].kill()
    eventually_sync(lambda: machine.parts[0].poll() is not None, 5, "the end of the agent")
    assert (await lookout.look(address, boot_id="another machine's")).answer == REFUSED
    machine.switch_off()
    for _ in range(4):
        assert (await lookout.look(address, boot_id="another machine's")).answer == SILENT
    for part in ("unreachable", "prohibit"):  # our own routes forbid it: nothing is sent, so nothing is known
        await asyncio.to_thread(machine.ip, "route", "replace", part, "198.18.77.2/32")
        assert (await lookout.look(address, boot_id="another machine's")).answer == UNABLE
        await asyncio.to_thread(machine.ip, "route", "del", part, "198.18.77.2/32")
