"""Two nodes in one process: a rank each, in a thread, that speak over queues, with disks and a shared directory on this
machine. A node dies at a call of its file system, and the other one notices as it would: it is not answered."""

import json
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from crash_world import Standing

from rankpulse.trainer.checkpoint.durable import Bringing, Lane
from rankpulse.trainer.checkpoint.errors import RanksLost
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.loading import Where
from rankpulse.trainer.checkpoint.saving import How, save_sharded
from rankpulse.trainer.checkpoint.state import mapped
from rankpulse.trainer.checkpoint.tiers.holdings import SHARED_PLACE
from rankpulse.trainer.checkpoint.tiers.peers import PeerCopies
from rankpulse.trainer.checkpoint.tiers.placed import Placed
from rankpulse.trainer.checkpoint.tiers.resuming import Places, TieredLoad
from rankpulse.trainer.checkpoint.tiers.saving import LocalSave
from rankpulse.trainer.checkpoint.tiers.shared import SharedPlace

WAIT_S = 20.0
NODES = [0, 1]


class Died(BaseException):
    """The node is gone: nothing that comes after is done."""


class Mortal(Standing):
    """Dies at point number `point` (-1: never), for good. `points`: how many there were."""

    def __init__(self, point: int = -1) -> None:
        self.point, self.points = point, 0

    def at(self, name: str) -> None:
        self.points += 1
        if 0 <= self.point < self.points:
            raise Died


class Wires:
    """What ranks have said, in order. `cut`: one is dead, and whoever waits is told so."""

    def __init__(self) -> None:
        self.said: dict[int, dict[int, Any]] = defaultdict(dict)
        self.blocks: dict[tuple[int, int], queue.SimpleQueue[bytes]] = defaultdict(queue.SimpleQueue)
        self.change, self.dead = threading.Condition(), False

    def cut(self) -> None:
        with self.change:
            self.dead = True
            self.change.notify_all()

    def rank(self, rank: int) -> Any:
        return Placed(_Rank(self, rank), NODES)  # type: ignore[arg-type]


class _Rank:
    world_size = len(NODES)

    def __init__(self, wires: Wires, rank: int) -> None:
        self._wires, self.rank, self._turn = wires, rank, 0
        self.nodes, self.local_rank, self.local_world_size = NODES, 0, 1

    def _all(self, value: Any) -> list[Any]:
        wires, self._turn = self._wires, self._turn + 1
        with wires.change:
            said = wires.said[self._turn]
            said[self.rank] = json.dumps(value)
            wires.change.notify_all()
            assert wires.change.wait_for(lambda: len(said) == len(NODES) or wires.dead, WAIT_S)
            if len(said) < len(NODES):
                raise RanksLost("the other one is gone")
            return [json.loads(said[rank]) for rank in NODES]

    def gather(self, value: Any) -> list[Any]:
        found = self._all(value)
        return found if self.rank == 0 else []

    def tell(self, value: Any) -> Any:
        return self._all(value)[0]

    def same(self, digest: str) -> bool:
        return self.same_each([digest])[0]

    def same_each(self, texts: Sequence[str]) -> list[bool]:
        return [len(set(each)) == 1 for each in zip(*self._all(list(texts)), strict=True)]

    def send(self, data: Any, to: int) -> None:
        self._wires.blocks[self.rank, to].put(bytes(data.numpy().tobytes()))

    def receive(self, data: Any, of: int) -> None:
        came: bytes | None = None
        while came is None:
            try:
                came = self._wires.blocks[of, self.rank].get(timeout=0.01)
            except queue.Empty:
                if self._wires.dead:
                    raise RanksLost("the other one is gone") from None
        if data.numel():
            data.copy_(torch.frombuffer(bytearray(came), dtype=torch.uint8).view(data.dtype))

    def swap(self, out: Any, to: int, into: Any, of: int) -> None:
        if out is not None:
            self.send(out, to)
        if into is not None:
            self.receive(into, of)


class Life:
    """Two nodes do `work(node)` at once; `dead`: those that died of it; `ended`: the others, by what."""

    def __init__(self, work: Callable[[int], Any], wires: Sequence[Wires], lanes: Sequence[Lane] = ()) -> None:
        self.came: dict[int, Any] = {}
        self.dead: set[int] = set()
        self.ended: dict[int, Exception] = {}

        def run(node: int) -> None:
            try:
                self.came[node] = work(node)
            except Died:
                self.dead.add(node)
            except Exception as error:
                self.ended[node] = error
            if node not in self.came:
                for one in wires:
                    one.cut()
                for lane in lanes:
                    lane.close()

        threads = [threading.Thread(target=run, args=(node,)) for node in NODES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "it hangs"


def state_of(step: int) -> dict[str, Any]:
    """Every element tells of which save it is."""
    return {"net": {"w": torch.full((64,), float(step)), "b": torch.full((3,), step, dtype=torch.int64)}}


def local(place: Path, node: int) -> str:
    return str(place / f"disk-{node}")


def saved(place: Path, step: int, disks: Sequence[Files], done: set[tuple[str, int]]) -> Life:
    """Both nodes save, copy to each other, bring it to the shared directory. done: (what, node), as far as it came."""
    wires, ring = Wires(), Wires()
    said: list[str] = []
    lanes = [
        Lane(
            SharedPlace(str(place / "shared"), disks[node], 9),
            Bringing(node, NODES, 2, 9, said.append, poll_s=0.001),
        )
        for node in NODES
    ]

    def work(node: int) -> None:
        here = wires.rank(node)
        how = How(mode="sharded", files=disks[node], onto=LocalSave)
        path = save_sharded(local(place, node), state_of(step), step, together=here, how=how).path
        done.add(("saved", node))
        PeerCopies(ring.rank(node), 1, disks[node], said.append, lambda event, **told: None)._turn(path, 1)
        done.add(("copied", node))
        lanes[node]._known[path.rpartition("/")[2]] = path
        lanes[node]._bring(path)
        done.add(("brought", node))

    return Life(work, [wires, ring], lanes)


def resumed(place: Path, said: list[str] | None = None) -> int | None:
    """The step that both nodes load, every element of it; None for a fresh start."""
    wires = Wires()

    def work(node: int) -> int | None:
        shared = SharedPlace(str(place / "shared"), Files(), 9)
        state = state_of(0)
        where = Where(say=(said if said is not None else []).append)
        places = Places(local(place, node), {SHARED_PLACE: shared})
        found = TieredLoad(places, mapped(state), wires.rank(node), where).run()
        if found is None:
            return None
        assert torch.equal(state["net"]["w"], state_of(found.step)["net"]["w"])
        assert torch.equal(state["net"]["b"], state_of(found.step)["net"]["b"])
        return found.step

    life = Life(work, [wires])
    for error in life.ended.values():
        raise error
    assert life.came[0] == life.came[1], "on both alike"
    return life.came[0]  # type: ignore[no-any-return]
