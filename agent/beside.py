"""What the kernel tells beside a rank's own word: bytes moved, loader workers, connections, the machine's addresses.

All of it in threads with a deadline: of a process in trouble a file in /proc may not come back.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from rankpulse.agent import loaders, proc, ras, sockets
from rankpulse.agent.aside import Aside, TooSlow
from rankpulse.agent.loaders import Child
from rankpulse.agent.usage import LOOK_S, busy_ticks
from rankpulse.agent.watch import Worker
from rankpulse.core.snapshot import Loaders

_ENVIRON_MAX: Final = 1 << 20
_WITHIN_S: Final = 0.4  # of one look
_TOLD: Final = ("NCCL_", "TORCH_", "GLOO_", "FI_", "UCX_", "CUDA_", "OMP_NUM_THREADS")  # of an environment
_VALUE_MAX: Final = 200
_ALL: Final = -1  # stands for all processes of the machine where others stand for one
T = TypeVar("T")


class Beside(NamedTuple):
    """Of one rank. `moved`: bytes read and written between two looks."""

    moved: int | None = None
    loaders: Loaders | None = None
    unacked: tuple[str, ...] = ()
    environment: dict[str, str] = {}  # noqa: RUF012


class Around(NamedTuple):
    """Of all of them, by pid. `ras`: where NCCL's own view may be asked for; `left_out`: what could not be seen."""

    of: dict[int, Beside]
    addresses: tuple[str, ...] = ()
    ras: tuple[str, int] | None = None
    left_out: tuple[str, ...] = ()


class _Measured(NamedTuple):
    """Of one rank at one moment."""

    moved: int | None
    children: list[Child]


class _Network(NamedTuple):
    """Of one network namespace. `silent`: peers that acknowledge nothing, `listening`: ports, by inode."""

    silent: dict[int, str] = {}  # noqa: RUF012
    listening: dict[int, int] = {}  # noqa: RUF012
    addresses: tuple[str, ...] = ()


@dataclass(slots=True)
class Surroundings:
    """Looks at them. Never raises; takes a second and a half at most."""

    aside: Aside = field(default_factory=lambda: Aside("rankpulse-look"))

    async def look(self, workers: Iterable[Worker]) -> Around:
        pids, lost = [worker.pid for worker in workers], list[str]()
        moving, networks, environments = await asyncio.gather(
            self._moving(pids, lost), self._networks(pids, lost), self._each(pids, _environment, lost, "environment")
        )
        suspects = [pid for pid in pids if networks[pid].silent]
        where = _ras_port(environments)
        serving = [pid for pid in pids if where[1] in networks[pid].listening.values() and _may_be_asked(pid)]
        open_ = await self._each({*suspects, *serving}, sockets.of_process, lost, "connections")
        of = {
            pid: Beside(
                *moving.get(pid, (None, None)),
                tuple(text for inode, text in networks[pid].silent.items() if inode in open_.get(pid, ()))[
                    : sockets.PEERS_MAX
                ],
                environments.get(pid, {}),
            )
            for pid in pids
        }
        served = any(networks[pid].listening.get(inode) == where[1] for pid in serving for inode in open_.get(pid, ()))
        addresses = dict.fromkeys(one for network in networks.values() for one in network.addresses)
        told = tuple(addresses)[: sockets.ADDRESSES_MAX]
        return Around(of, told, where if served else None, tuple(dict.fromkeys(lost)))

    def close(self) -> None:
        self.aside.close()

    async def _each(self, pids: Iterable[int], look: Callable[[int], T], lost: list[str], what: str) -> dict[int, T]:
        """One look at each of these, all at once; what does not come is missing, and said."""

        async def one(pid: int) -> tuple[int, T] | None:
            label = f"{what} of process {pid}"
            pair: tuple[int, T] | None = await self._try(label, lost, look, pid, found=lambda told: (pid, told), at=pid)
            return pair

        return dict(pair for pair in await asyncio.gather(*(one(pid) for pid in pids)) if pair is not None)

    async def _try(
        self, what: str, lost: list[str], look: Callable[..., Any], *args: Any, found: Any, at: int | None = None
    ) -> Any:
        try:
            return found(await self.aside.call(_WITHIN_S, look, *args, at=at))
        except TooSlow as error:
            lost.append(f"{what}: {error}")
        except PermissionError:
            lost.append(f"{what}: not ours to see")
        except OSError:
            pass  # it has ended: that is told otherwise
        return None

    # -- what moves ---------------------------------------------------------------------------------------------
    async def _moving(self, pids: list[int], lost: list[str]) -> dict[int, tuple[int | None, Loaders | None]]:
        children = await self._try("loader workers", lost, loaders.of_parents, pids, found=dict, at=_ALL) or {}
        began = asyncio.get_running_loop().time()
        before = await self._each(pids, lambda pid: _measure(pid, children.get(pid, [])), lost, "bytes")
        await asyncio.sleep(max(began + LOOK_S - asyncio.get_running_loop().time(), 0.1))
        after = await self._each(before, lambda pid: _measure(pid, before[pid].children), lost, "bytes")
        took = asyncio.get_running_loop().time() - began
        return {pid: _between(before[pid], now, took) for pid, now in after.items()}

    # -- who is silent ------------------------------------------------------------------------------------------
    async def _networks(self, pids: list[int], lost: list[str]) -> dict[int, _Network]:
        """By pid; each namespace is looked at once."""
        names = {pid: sockets.namespace(pid) or str(pid) for pid in pids}
        first = {name: pid for pid, name in reversed(names.items())}
        found = await self._each(first.values(), _network, lost, "network")
        return {pid: found.get(first[name], _Network()) for pid, name in names.items()}


def _measure(pid: int, children: list[Child]) -> _Measured:
    return _Measured(loaders.bytes_moved(pid), loaders.again(children))


def _between(before: _Measured, after: _Measured, seconds: float) -> tuple[int | None, Loaders | None]:
    known = before.moved is not None and after.moved is not None
    moved = after.moved - before.moved if known else None  # type: ignore[operator]
    return moved, loaders.summary(before.children, after.children, busy_ticks(seconds))


def _network(pid: int) -> _Network:
    table = list(sockets.rows(sockets.table(pid)))
    listening = {one.inode: one.local[1] for one in table if one.state == sockets.LISTENING}
    listening = listening if sockets.namespace(pid) == sockets.namespace("self") else {}  # elsewhere nobody is reached
    return _Network(sockets.unacknowledged(table), listening, sockets.addresses(pid))


def _environment(pid: int) -> dict[str, str]:
    """What is said there of communication. Not of one that waits in the kernel: its memory may not be had."""
    seen = proc.stat(pid)
    if seen is None or seen.state == "D":
        return {}
    with open(f"/proc/{pid}/environ", "rb") as file:
        entries = file.read(_ENVIRON_MAX).decode("utf-8", "replace").split("\0")
    told = (entry.partition("=") for entry in entries if entry.startswith(_TOLD))
    return {name: value[:_VALUE_MAX] for name, _, value in told}


def _ras_port(environments: dict[int, dict[str, str]]) -> tuple[str, int]:
    return ras.place(next((one for one in environments.values() if ras.VARIABLE in one), {}))


def _may_be_asked(pid: int) -> bool:
    seen = proc.stat(pid)
    return seen is not None and seen.state not in "TtZX"
