"""The stage of the drills: a real etcd, a proxy in front of it, two agents and a monitor, all on this machine."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Self

from rankpulse.core.keys import Keys
from rankpulse.core.records import Beat, Leader
from rankpulse.core.settings import StoreSettings, preset
from rankpulse.drills.children import Child, rankpulse
from rankpulse.drills.fortress import Fortress
from rankpulse.drills.witness import Timeout, Witness
from rankpulse.store.embedded import EmbeddedEtcd
from rankpulse.store.etcd import open_store

CLUSTER = "demo"
NODES = ("node-0", "node-1")
# What is done by lot to one and the same node three times is not that node's fault: it would be cordoned for it.
NO_STRIKES = "[policy]\nstrikes = 0\n"


class Proxy:
    """The path between the agents and etcd, as a process of its own that obeys lines."""

    def __init__(self, port: int, listen: str = "127.0.0.1") -> None:
        argv = [sys.executable, "-m", "rankpulse.drills.proxy", "127.0.0.1", str(port), listen]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.endpoint = f"{listen}:{int(self._process.stdout.readline())}"

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if answer != "ok":
            raise RuntimeError(f"proxy: {line}: {answer or 'it ended'}")

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


class Stage:
    """`async with Stage(directory) as stage`: everything is up, and all of it is gone afterwards.

    `agents` and `monitor`: settings of theirs beyond the preset, as TOML.
    """

    listen = "127.0.0.1"  # where agents reach the store

    def __init__(
        self,
        directory: Path,
        *,
        nodes: tuple[str, ...] = NODES,
        agents: str = "",
        monitor: str = NO_STRIKES,
        secure: bool = False,
    ) -> None:
        """`secure`: etcd with TLS, client certificates and users, none of which lasts."""
        self.directory, self.nodes = directory, nodes
        self.fortress = Fortress(directory / "secrets", CLUSTER, nodes) if secure else None
        self._renewing: asyncio.Task[None] | None = None
        self._of_agents, self._of_monitor = agents, monitor
        self.settings = preset("drill")
        self.keys = Keys(CLUSTER)
        self.run_dirs = {node: directory / node for node in nodes}
        self.agents: dict[str, Child] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._up()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _up(self) -> None:
        self.etcd = await asyncio.to_thread(self._start_etcd)
        self.proxy = Proxy(self.etcd.port, self.listen)
        if self.fortress is None:
            self.store = await open_store(StoreSettings(endpoints=(self.etcd.endpoint,)))
        else:
            await self.fortress.closed(self.etcd.endpoint)
            self.store = await open_store(self.fortress.root(self.etcd.endpoint))
            self._renewing = asyncio.create_task(self.fortress.keep_renewing())
        self.witness = await Witness(self.store, self.keys).__aenter__()
        self.monitor = self.new_monitor().start()
        for node in self.nodes:
            self.agents[node] = self.new_agent(node).start()
        await self._ready()

    async def add(self, node: str, agents: str | None = None) -> None:
        """One more node, or a known one with another agent, which has spoken when this returns. `agents`: as above."""
        self._of_agents = self._of_agents if agents is None else agents
        self.run_dirs[node] = self.directory / node
        if self.fortress is not None:
            await self.fortress.admit(node, self.etcd.endpoint)
        before = self._incarnation(node)
        if node in self.agents:
            await asyncio.to_thread(self.agents[node].end, grace_s=3.0)
        self.agents[node] = self.new_agent(node).start()
        try:
            await self.witness.until(lambda: self._incarnation(node) > before, 30.0, f"the agent of {node}")
        except Timeout as error:
            raise RuntimeError(f"{error}\n{self.agents[node].tail()}") from error

    def _incarnation(self, node: str) -> int:
        return next((beat.inc for beat in self.witness.all(Beat) if beat.node == node), 0)

    def _start_etcd(self) -> EmbeddedEtcd:
        etcd = EmbeddedEtcd() if self.fortress is None else self.fortress.etcd()
        etcd.start()
        return etcd

    def new_monitor(self, env: dict[str, str] | None = None) -> Child:
        """A monitor that is not started yet; it speaks to etcd directly."""
        config = self._config("monitor", self.etcd.endpoint, f'[monitor]\nlisten = "127.0.0.1:0"\n{self._of_monitor}')
        argv = rankpulse("monitor", "--config", str(config))
        return Child("monitor", argv, log=self.directory / "monitor.log", env=env)

    def new_agent(self, node: str, env: dict[str, str] | None = None) -> Child:
        """The agent of `node`, not started yet; it speaks to etcd through the proxy."""
        self.run_dirs[node].mkdir(parents=True, exist_ok=True)
        text = f'[agent]\nnode = "{node}"\nrun_dir = "{self.run_dirs[node]}"\nlisten = ""\n{self.of_agent(node)}'
        config = self._config(node, self.proxy.endpoint, text)
        argv = self.on(node, rankpulse("agent", "--config", str(config)))
        return Child(node, argv, log=self.directory / f"{node}.log", env=env)

    def of_agent(self, node: str) -> str:
        """The settings of its agent beyond the preset."""
        return self._of_agents

    def on(self, node: str, argv: list[str]) -> list[str]:
        """`argv`, to be started on that node."""
        return argv

    def _config(self, name: str, endpoint: str, rest: str) -> Path:
        path = self.directory / f"{name}.toml"
        store = f'endpoints = ["{endpoint}"]\n{self.fortress.of(name) if self.fortress else ""}'
        path.write_text(f'cluster = "{CLUSTER}"\npreset = "drill"\n[store]\n{store}{rest}')
        return path

    async def _ready(self) -> None:
        def up() -> bool | None:
            for child in (self.monitor, *self.agents.values()):
                if not child.alive():
                    raise RuntimeError(f"{child.name} ended at once:\n{child.tail()}")
            return bool(self.witness.all(Leader)) and len(self.witness.all(Beat)) == len(self.nodes)

        try:
            await self.witness.until(up, 30.0, "the agents' first beats and a leading monitor")
        except Timeout as error:
            logs = "\n".join(f"--- {c.name}\n{c.tail()}" for c in (self.monitor, *self.agents.values()))
            raise RuntimeError(f"{error}\n{logs}") from error

    async def __aexit__(self, *_: object) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        for child in (*self.agents.values(), *([self.monitor] if hasattr(self, "monitor") else [])):
            await asyncio.to_thread(child.end, grace_s=3.0)
        if hasattr(self, "witness"):
            await self.witness.__aexit__()
        if hasattr(self, "store"):
            await self.store.close()
        if hasattr(self, "proxy"):
            self.proxy.stop()
        if hasattr(self, "etcd"):
            await asyncio.to_thread(self.etcd.stop)
