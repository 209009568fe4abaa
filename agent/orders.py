"""Orders of the monitor, carried out on this node: each once, and only against the very processes it names."""

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from rankpulse.agent.dossier import Dossiers
from rankpulse.agent.evidence import encode
from rankpulse.agent.facts import Fact
from rankpulse.agent.folder import Folder
from rankpulse.agent.holders import Holders
from rankpulse.agent.last_words import LastWords
from rankpulse.agent.log import Log
from rankpulse.agent.restart import Restart
from rankpulse.agent.torchruns import Torchruns
from rankpulse.agent.watch import Workers
from rankpulse.core import last_words, records
from rankpulse.core.last_words import Words
from rankpulse.core.look_evidence import Collect
from rankpulse.core.records import Order

_REMEMBERED: Final = 1000
_MEMORY: Final = "orders.done"
_RELEASES: Final = 1000
_Work: TypeAlias = Callable[[Order], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Orders:
    """`folder`: where those carried out are kept; `changed`: why workers die is to be written down."""

    node: str
    workers: Workers
    torchruns: Torchruns
    holders: Holders
    dossiers: Dossiers
    emit: Callable[[Fact], None]
    log: Log
    push: Callable[[], None]  # tell the torchruns of an ordered round
    changed: Callable[[], None]
    words: LastWords = field(init=False)
    folder: Folder | None = None
    done_count: int = 0
    _done: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _active: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _releases: dict[tuple[str, int], str] = field(default_factory=dict)  # also for holders that come back later
    _speaking: dict[str, tuple[str, int]] = field(default_factory=dict)  # rounds in which last words are asked for

    def __post_init__(self) -> None:
        self.words = LastWords(self.node, self.workers, self._reassure)

    def _reassure(self, order: Order) -> None:
        self.holders.reassure(order.run_uid, order.round, f"survivors save first: {order.reason}")

    def load(self) -> None:
        """An agent that starts again does not report the orders of its predecessor anew."""
        if self.folder:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self._done.extend(
                    msgspec.json.decode(self.folder.read(_MEMORY, 1 << 20), type=list[str])[-_REMEMBERED:]
                )

    def save(self) -> None:
        """A disk that does not serve costs only the memory of this."""
        if self.folder:
            with contextlib.suppress(OSError):
                self.folder.write(_MEMORY, msgspec.json.encode(list(self._done)))

    def released(self, run_uid: str, round_: int) -> str:
        """Why the holders of this round shall end, "" while they need not."""
        return self._releases.get((run_uid, round_), "")

    def obey(self, order: Order) -> None:
        """Carry out an order that concerns this node, unless it has been or is under way."""
        if self.node not in order.nodes and not order.seats.get(self.node):
            return
        if order.kind == "release":
            self._remember_release(order)
        mark = _mark(order, self.node)
        if mark in self._done or mark in self._active:
            return
        work = self._work(order.kind)
        if work is None:
            self.log.change(f"kind {order.kind}", "warning", f"orders of kind {order.kind[:40]!r} are not known here")
            return
        if order.kind == "restart" and order.last_words_s > 0:
            self._speaking[mark] = (order.run_uid, order.round)
        self._active[mark] = asyncio.create_task(self._carry_out(mark, order, work))

    def _work(self, kind: str) -> _Work | None:
        known = {"restart": self._restart, "kill": self._kill, "release": self._release}
        return self._collect if kind.startswith("collect-") else known.get(kind)

    async def _carry_out(self, mark: str, order: Order, work: _Work) -> None:
        """An order that could not be carried out is not done: it is tried again when it is seen again."""
        try:
            await work(order)
        except Exception as error:
            self.log.say("error", f"order {order.order_id}: {type(error).__name__}: {error}")
            self._go_on(order)
            return
        finally:
            self._active.pop(mark, None)
            self._speaking.pop(mark, None)
        self._done.append(mark)
        self.done_count += 1
        self.save()

    async def close(self) -> None:
        """What is under way is left to the next agent."""
        tasks = list(self._active.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the kinds ----------------------------------------------------------------------------------------------
    async def _restart(self, order: Order) -> None:
        if self.torchruns.in_run(order.run_uid):
            steps = Restart(
                order, self.node, self.workers, self.torchruns, self.holders, lambda: self._go_on(order), self.changed,
                self.words,
            )  # fmt: skip
            killed, note, said = await steps.run()
        else:
            said = await self.words.ask(order)
            killed, note = self.workers.kill(order), ""
            self.changed()  # the next agent, too, shall know why they died
        self._report(order, killed, note, said)

    def _go_on(self, order: Order) -> None:
        """All that was to be said is said: torchrun may stop the workers."""
        self._speaking.pop(_mark(order, self.node), None)
        self.push()

    def speaking(self, run_uid: str, round_: int) -> bool:
        """Whether trainers of that round are about to write, or do: its torchruns are told nothing meanwhile."""
        return (run_uid, round_) in self._speaking.values()

    async def _kill(self, order: Order) -> None:
        """The second rung: nothing of the round is left alive, whether the monitor knew of it or not. Where torchrun
        does not listen, the end of its workers, or of their holders, is what it notices."""
        holders = self.holders.of_round(order.run_uid, order.round)
        self.workers.mark(order)
        self.changed()
        seats = [*order.seats.get(self.node, ()), *self.workers.seats_of_round(order)]
        killed = self.workers.kill(order, {(seat.pid, seat.start): seat for seat in seats}.values())
        self._report(order, killed + self.holders.end(holders), "")

    async def _release(self, order: Order) -> None:
        told = self.holders.release(order.run_uid, order.round, order.reason or "released")
        self._report(order, 0, f"{told} holders told")

    def _remember_release(self, order: Order) -> None:
        self._releases[order.run_uid, order.round] = order.reason or "released"
        while len(self._releases) > _RELEASES:
            del self._releases[next(iter(self._releases))]

    async def _collect(self, order: Order) -> None:
        about = Collect(order_id=order.order_id, run_uid=order.run_uid, round=order.round)
        found = await self.dossiers.of(about, self.workers.of_seats(order))
        rows = encode(found.rows)
        self.emit(Fact(records.EVIDENCE, found.run, detail={"order_id": order.order_id, "rows": rows}))
        count, why = len(found.rows), order.reason[:200]
        self.log.say("info", f"order {order.order_id} carried out: evidence of {count} ranks ({why})")

    def _report(self, order: Order, killed: int, note: str, said: Words = Words()) -> None:  # noqa: B008 (a constant)
        why = f"{note}; {order.reason}" if note else order.reason
        self.log.say("info", f"order {order.order_id} carried out: {killed} processes killed ({why[:200]})")
        detail: dict[str, records.Scalar] = {"order_id": order.order_id, "killed": killed}
        for line in last_words.story([(self.node, said)]):
            self.log.say("info", f"order {order.order_id}: {line}")
        detail |= last_words.told(said)
        self.emit(Fact(records.ORDER_DONE, detail={**detail, "note": note} if note else detail))


def _mark(order: Order, node: str) -> str:
    """What tells an order from every other. Its id does not: a store that was emptied gives the same ones again."""
    whole = msgspec.json.encode((order.order_id, order.run_uid, order.round, order.kind, order.seats.get(node, ())))
    return hashlib.sha256(whole).hexdigest()[:32]
