"""Last words of a round that is about to be ended: all trainers that live here are asked to save, at the same time.

Each answers from a thread of its own, also while its main thread waits in a collective for somebody who is dead. What
they write, where, and whether it is worth anything is theirs to decide; here it is bounded, heard and told. Nobody is
asked who could not answer, and nothing waits longer than the order allows.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from rankpulse.agent import proc, worker_server
from rankpulse.agent.watch import Worker, Workers
from rankpulse.agent.worker_server import NoAnswer
from rankpulse.core.last_words import REFUSED, SAVED, STOPPED, UNANSWERED, Words
from rankpulse.core.records import Order
from rankpulse.core.words import printable

HANDLER: Final = "rankpulse_last_words"
PROTOCOL: Final = 1
LONGEST_S: Final = 300.0  # whatever an order says
MORE_S: Final = 1.0  # beyond the limit, for an answer that is on its way
_OTHERS_S: Final = 0.5  # once one has saved: the others have taken part, or hang
_REASSURE_S: Final = 1.0  # holders of the dead wait for a word, and no longer than theirs allows
_QUESTION_MAX: Final = 4096
_ANSWER_MAX: Final = 16 * 1024
_GARBAGE: Final = "its answer is none of ours"
_Rank = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Answer(msgspec.Struct, frozen=True):
    """What a trainer says."""

    outcome: Literal["saved", "refused"]
    step: Annotated[int, Meta(ge=-1, le=2**53)] = -1
    reason: str = ""
    absent: Annotated[tuple[_Rank, ...], Meta(max_length=100_000)] = ()


@dataclass(slots=True)
class LastWords:
    """`reassure(order)`: tell those who wait for a word about the round to wait on."""

    node: str
    workers: Workers
    reassure: Callable[[Order], None]

    async def ask(self, order: Order) -> Words:
        """What came of it; nothing where the order does not ask, or nobody is left here."""
        if not order.last_words_s > 0:
            return Words()
        self.workers.readings()  # whether a stopped one is within an update, as of now
        living = self._living(order)
        stopped = [one for one in living if not _answers(one)]
        asked = [one for one in living if one not in stopped and one.who.rank not in order.absent]
        gone = self.workers.ended_of(order)
        absent = {*order.absent, *gone, *(one.who.rank for one in stopped)}
        torn = {rank for rank, updating in gone.items() if updating} | {o.who.rank for o in stopped if o.updating}
        if not asked:
            return Words()
        limit_s = min(order.last_words_s, LONGEST_S)
        questions = {one: _question(one, absent - {one.who.rank}, torn, limit_s) for one in asked}
        if any(len(body) > _QUESTION_MAX for body in questions.values()):
            return Words(REFUSED, reason=f"{len(absent)} ranks are gone: too many to name")
        return _sum_up(await self._hear(order, questions, limit_s + MORE_S), limit_s + MORE_S)

    def _living(self, order: Order) -> list[Worker]:
        """Also those that the order does not name: they came after it was written."""
        found = {(one.pid, one.start): one for one in self.workers.of_round(order.run_uid, order.round)}
        found |= {(one.pid, one.start): one for one in self.workers.of_seats(order)}
        return sorted(found.values(), key=lambda one: one.who.rank)

    async def _hear(self, order: Order, questions: dict[Worker, bytes], limit_s: float) -> dict[int, Answer | str]:
        """By rank: the answer, or why there is none; "" while it may still come."""
        loop = asyncio.get_running_loop()
        until = loop.time() + limit_s
        tasks = {asyncio.create_task(self._put(one, body)): one.who.rank for one, body in questions.items()}
        heard: dict[int, Answer | str] = dict.fromkeys(tasks.values(), "")
        pending = set(tasks)
        try:
            while pending and (left_s := until - loop.time()) > 0:
                self.reassure(order)
                patience_s = min(left_s, _REASSURE_S)
                done, pending = await asyncio.wait(pending, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                heard |= {tasks[task]: task.result() for task in done}
                if any(isinstance(one, Answer) and one.outcome == SAVED for one in heard.values()):
                    until = min(until, loop.time() + _OTHERS_S)
        finally:
            for task in pending:
                task.cancel()
        return heard

    async def _put(self, worker: Worker, question: bytes) -> Answer | str:
        """The question to one of them: its answer, or why there is none."""
        try:
            body = await worker_server.ask(self.workers.run_dir, worker, HANDLER, _ANSWER_MAX, question)
            answer = msgspec.json.decode(body, type=Answer)
            return answer if answer.outcome != SAVED or answer.step >= 0 else _GARBAGE
        except NoAnswer as error:
            return "it does not offer them" if error.status == worker_server.NO_HANDLER else str(error)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return _GARBAGE
        except OSError as error:
            return f"its server cannot be reached: {error.strerror or error}"


def _answers(worker: Worker) -> bool:
    seen = proc.stat(worker.pid)
    return seen is not None and seen.start == worker.start and seen.state not in STOPPED


def _question(worker: Worker, absent: Iterable[int], torn: Iterable[int], within_s: float) -> bytes:
    """As its own life is called: a trainer that does not meet through us knows no other name of its run."""
    run = worker.who.run
    said = {"v": PROTOCOL, "run_uid": run.run_uid, "round": run.round, "absent": sorted(absent), "torn": sorted(torn)}
    return json.dumps({**said, "within_s": within_s}, separators=(",", ":")).encode()


def _sum_up(heard: dict[int, Answer | str], limit_s: float) -> Words:
    """One that saved counts for all: a checkpoint is of all of them. Then what is said against it."""
    answers = [one for one in heard.values() if isinstance(one, Answer)]
    saved = max((one for one in answers if one.outcome == SAVED), key=lambda one: one.step, default=None)
    if saved is not None:
        return Words(SAVED, saved.step, tuple(sorted(set(saved.absent))), printable(saved.reason))
    refused = next((one for one in answers if one.outcome == REFUSED), None)
    if refused is not None:
        return Words(REFUSED, reason=printable(refused.reason))
    rank, why = next((rank, str(one)) for rank, one in sorted(heard.items()))
    more = f" (and {len(heard) - 1} more)" if len(heard) > 1 else ""
    return Words(UNANSWERED, reason=f"rank {rank}{more}: {why or f'no answer within {limit_s:g} s'}")
