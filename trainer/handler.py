"""The rendezvous of `torchrun --rdzv-backend rankpulse`: torch's interface on one side, the node's agent on the other.

Lives in torchrun, never in a training process. It decides nothing: the agent says who meets and when to meet again.
While a round stands, nothing that happens to the agent or the store is noticed here.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.rendezvous import api

from rankpulse.trainer import rdzvconf, stores
from rankpulse.trainer.agentline import AgentLine, socket_path
from rankpulse.trainer.session import JOIN_RETRY_S, NoAgent, Session, say

PROTOCOL = 1
LEAVE_S = 2.0
TRIES = 3  # of a round whose members do not come together in its store
BEFORE_STEP, BEFORE_ROUND = "RANKPULSE_RESUME_BEFORE_STEP", "RANKPULSE_RESUME_BEFORE_ROUND"
EVIDENCE = {
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_ENABLE_TIMING": "1",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
}
_ERRORS: dict[str, type[api.RendezvousError]] = {
    "closed": api.RendezvousClosedError,
    "finished": api.RendezvousGracefulExitError,
    "timeout": api.RendezvousTimeoutError,
    "cordoned": api.RendezvousError,
    "mismatch": api.RendezvousStateError,
    "corrupt": api.RendezvousStateError,
}


class Met(NamedTuple):
    """The agent's answer to a join."""

    run_uid: str
    round: int
    rank: int
    nodes: int
    address: str
    port: int
    resume_before_step: int = -1
    resume_before_round: int = 0


def create(parameters: Any) -> "Handler":
    """For torch's registry. Raises `BadConf` in plain words."""
    conf, warnings = rdzvconf.parse(parameters.config)
    endpoint = parameters.endpoint or ""
    label = rdzvconf.label(parameters.run_id, parameters.max_nodes, endpoint, os.urandom(6).hex())
    for warning in warnings:
        say(warning)
    line = AgentLine(socket_path(os.environ, endpoint), {"op": "rendezvous", "v": PROTOCOL})
    nodes = (parameters.min_nodes, parameters.max_nodes)
    return Handler(label, nodes, conf, stores.own_address(parameters.local_addr, nodes[1]), line)


class Handler(api.RendezvousHandler):  # type: ignore[misc]
    """One torchrun of a run."""

    def __init__(
        self,
        label: str,
        nodes: tuple[int, int],
        conf: rdzvconf.Conf,
        address: str,
        line: AgentLine,
        *,
        reach_s: float = stores.REACH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label, self._nodes, self._conf, self._address = label, nodes, conf, address
        self._agent = Session(line, (conf.agent_wait_s, conf.join_timeout), clock=clock)
        self._reach_s, self._clock = reach_s, clock
        self._join = self._round = 0
        self._run_uid = ""
        self._waiting = 0  # torchruns that wait for the next round, as the agent says
        self._restarting = False
        self._refused = ""  # the kind of the refusal
        own = BEFORE_ROUND not in os.environ  # asked for where torchrun was started, and not inherited from a round
        self._own_limit = os.environ.get(BEFORE_STEP, "") if own else ""
        self._around = sys.exc_info()[1]  # an exception that is being handled where we are used is not ours

    def get_backend(self) -> str:
        return "rankpulse"

    @property
    def use_agent_store(self) -> bool:
        return True

    def get_run_id(self) -> str:
        return self._label

    def is_closed(self) -> bool:
        return self._refused in ("closed", "finished")

    def set_closed(self) -> None:
        self._leave("failed", "closed by torchrun")

    # -- meeting --

    def next_rendezvous(self) -> api.RendezvousInfo:
        """Block until the next round is complete. Raises `RendezvousError`s whose text says what to do."""
        for _ in range(TRIES):
            own = stores.serve()  # before joining: nobody is told an address where nothing listens
            met = self._meet(own.port)
            self._round, self._run_uid, self._waiting, self._restarting = met.round, met.run_uid, 0, False
            try:
                store = self._come_together(met, own)
            except stores.NotTogether as error:
                trouble = str(error)
                say(f"waiting: round {met.round} did not come together, meeting again: {trouble}")
                continue
            os.environ.update(RANKPULSE_RUN_UID=met.run_uid, RANKPULSE_ROUND=str(met.round))
            self._limit(met)
            for name, value in EVIDENCE.items():
                os.environ.setdefault(name, value)
            place = api.RendezvousStoreInfo(met.address, met.port)
            return api.RendezvousInfo(store, met.rank, met.nodes, place)
        raise api.RendezvousConnectionError(f"{TRIES} rounds in a row did not come together: {trouble}")

    def _limit(self, met: Met) -> None:
        """Hand on to the workers what they must not resume from: all checkpoints of a step and beyond that lay there
        in a round. One that torchrun was started with speaks of what lay there before its first round."""
        step, round_ = self._own_limit, 0
        if met.resume_before_step >= 0:
            step, round_ = str(met.resume_before_step), met.resume_before_round
            say(f"round {met.round} resumes from a checkpoint before step {step}: asked for in round {round_}")
        for name in (BEFORE_STEP, BEFORE_ROUND):
            os.environ.pop(name, None)  # also what an earlier round left
        if step:
            os.environ.update({BEFORE_STEP: step, BEFORE_ROUND: str(round_)})

    def _come_together(self, met: Met, own: Any) -> Any:
        until = self._clock() + self._reach_s
        store = own if met.rank == 0 else stores.connect(met.address, met.port, until, self._tick)
        stores.gather(store, met.rank, met.nodes, until, self._tick)
        return store

    def _tick(self, seconds: float) -> None:
        self._agent.line.wait(seconds)
        if self.num_nodes_waiting() > 0:
            raise stores.NotTogether("a member is gone or waits for the next round already")

    def _meet(self, port: int) -> Met:
        self._join += 1
        request = {
            "label": self._label, "min_nodes": self._nodes[0], "max_nodes": self._nodes[1], "join": self._join,
            "run_uid": self._run_uid, "after": self._round, "address": self._address, "port": port,
            "last_call_s": self._conf.last_call_timeout, "timeout_s": self._conf.join_timeout,
        }  # fmt: skip
        self._agent.begin()
        self._agent.line.send({"join": request})
        while True:
            if self._agent.open(JOIN_RETRY_S):
                self._agent.line.send({"join": request})
            self._agent.line.wait(JOIN_RETRY_S)
            for message in self._agent.listen():
                if "met" in message:
                    return _met(message["met"])
                if "refused" in message:
                    self._refuse(message["refused"])
            try:
                self._agent.mind()
            except NoAgent as error:
                raise api.RendezvousConnectionError(str(error)) from None

    def _refuse(self, refused: Any) -> None:
        said = refused if isinstance(refused, dict) else {}
        kind, reason = str(said.get("kind", "")), str(said.get("reason", ""))[:1000]
        self._refused = kind
        say(f"no round for this node: {reason}")
        raise _ERRORS.get(kind, api.RendezvousError)(f"rankpulse: {reason}")

    # -- while a round stands --

    def num_nodes_waiting(self) -> int:
        """How many wait for the next round: this one has to end. Never blocks; raises only what ends torchrun too."""
        try:
            if self._agent.open():
                self._watch()
            for message in self._agent.listen():
                self._fold(message.get("again"))
            if self._waiting and not self._restarting:
                self._restarting = True
                self._agent.line.send({"restarting": {"round": self._round}})
        except SignalException:  # torchrun itself is asked to end: that is not ours to swallow
            raise
        except Exception as error:  # torchelastic would die of it, and the job with it
            self._agent.line.close(f"{type(error).__name__}: {error}")
        return self._waiting

    def _watch(self) -> None:
        """Tell an agent that has just been started, or found again, where we are."""
        self._agent.line.send({"watch": {"run_uid": self._run_uid, "round": self._round, "join": self._join}})

    def _fold(self, again: Any) -> None:
        """An order for another round than ours is void."""
        if isinstance(again, dict) and again.get("round") == self._round:
            waiting = again.get("waiting")
            if not self._waiting:
                say(f"round {self._round} ends and meets again: {str(again.get('reason', ''))[:500]}")
            self._waiting = waiting if type(waiting) is int and waiting > 0 else 1

    # -- the end --

    def shutdown(self) -> bool:
        """torchrun ends. How, is known from the exception it is ending with: torch does not say."""
        error = sys.exc_info()[1]
        outcome, reason = ending(None if error is self._around else error)
        left = self._leave(outcome, reason)
        if self._refused == "finished" and isinstance(error, AttributeError):
            # torch lets a graceful exit return no result, and then asks that for its state
            raise SystemExit(0) from None
        return left

    def _leave(self, outcome: str, reason: str) -> bool:
        """Tell the agent; wait for its word, but not long. Never raises."""
        if not self._join:
            return True
        try:
            if self._agent.open(0.0) and self._round:
                self._watch()
            self._agent.line.send({"leave": {"outcome": outcome, "reason": reason}})
            until = self._clock() + LEAVE_S
            while self._agent.line.connected and self._clock() < until:
                self._agent.line.wait(until - self._clock())
                if any("left" in message for message in self._agent.listen()):
                    return True
        except Exception as error:
            self._agent.line.close(f"{type(error).__name__}: {error}")
        finally:
            self._agent.line.close()
        return False


def ending(error: BaseException | None) -> tuple[str, str]:
    """(outcome, reason) of a torchrun that ends with this exception.

    One that got no round is merely gone: the others go on without it.
    """
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "finished", ""
    if isinstance(error, (api.RendezvousError, KeyboardInterrupt)):
        return "gone", _first_line(error) or "interrupted"
    first = getattr(error, "get_first_failure", None)
    if first is not None:
        rank, failure = first()
        return "failed", f"rank {rank} ended with exit code {failure.exitcode}"
    return "failed", f"{type(error).__name__}: {_first_line(error)}"


def _met(said: Any) -> Met:
    try:
        met = Met(**said)
    except TypeError:
        met = None
    numbers = met and all(type(number) is int for number in (met.round, met.rank, met.nodes, met.port, *met[6:]))
    if met is None or not numbers or not all(isinstance(text, str) for text in (met.run_uid, met.address)):
        raise api.RendezvousStateError(
            "the agent answered a join with what this rankpulse does not understand: run the same version in both"
        )
    return met


def _first_line(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0][:300]
    return text.encode("utf-8", "replace").decode()  # the agent takes no halves of characters
