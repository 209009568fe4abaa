"""Three etcd members of our own, for drills and tests of what one of them survives the loss of."""

from concurrent.futures import ThreadPoolExecutor
from typing import Self

from rankpulse.store.embedded import EmbeddedEtcd, NoEtcd, free_ports

_TRIES = 3


class EmbeddedCluster:
    """`with EmbeddedCluster() as cluster`: all members are there. `members[n]` can be killed, paused, restarted."""

    def __init__(self, count: int = 3) -> None:
        self._count = count
        self.members: list[EmbeddedEtcd] = []

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """On free ports; waits until all answer. Raises `NoEtcd`."""
        for last in (n == _TRIES - 1 for n in range(_TRIES)):
            try:
                self._start()
                return
            except NoEtcd:  # somebody took a port in the meantime
                self.stop()
                if last:
                    raise

    def _start(self) -> None:
        ports = free_ports(3 * self._count)
        self.members = [EmbeddedEtcd(name=f"m{n}") for n in range(self._count)]
        for n, member in enumerate(self.members):
            member.place(ports[3 * n : 3 * n + 3])
        peers = ",".join(member.peer for member in self.members)
        with ThreadPoolExecutor(self._count) as pool:  # none answers before most of them are there
            for started in [pool.submit(member.join, peers) for member in self.members]:
                started.result()

    def stop(self) -> None:
        for member in self.members:
            member.stop()
