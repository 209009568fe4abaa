"""The rendezvous of `torchrun --rdzv-backend rankpulse`: torch's interface on one side, the node's agent on the other.

Lives in torchrun, never in a training process. It decides nothing: the agent says who meets and when to meet again.
While a round stands, nothing that happens to the agent or the store is noticed here.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch.distributed.elastic.rendezvous import api

from rankpulse.trainer import rdzvconf, stores
from rankpulse.trainer.agentline import AgentLine, socket_path

PROTOCOL = 1
JOIN_RETRY_S = 0.25
LEAVE_S = 2.0
TRIES = 3  # of a round whose members do not come together in its store
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
        self._line, self._reach_s, self._clock = line, reach_s, clock
        self._join = self._round = 0
        self._run_uid = ""
        self._greeted = False  # by the agent, on this line
        self._inbox: list[dict[str, Any]] = []
        self._known = False  # an agent has answered before
        self._objection = ""  # why the agent does not want to talk to us
        self._waiting = 0  # torchruns that wait for the next round, as the agent says
        self._restarting = False
        self._refused = ""  # the kind of the refusal
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
            for name, value in EVIDENCE.items():
                os.environ.setdefault(name, value)
            place = api.RendezvousStoreInfo(met.address, met.port)
            return api.RendezvousInfo(store, met.rank, met.nodes, place)
        raise api.RendezvousConnectionError(f"{TRIES} rounds in a row did not come together: {trouble}")

    def _come_together(self, met: Met, own: Any) -> Any:
        until = self._clock() + self._reach_s
        store = own if met.rank == 0 else stores.connect(met.address, met.port, until, self._tick)
        stores.gather(store, met.rank, met.nodes, until, self._tick)
        return store

    def _tick(self, seconds: float) -> None:
        self._line.wait(seconds)
        if self.num_nodes_waiting() > 0:
            raise stores.NotTogether("a member is gone or waits for the next round already")

    def _meet(self, port: int) -> Met:
        self._join += 1
        request = {
            "label": self._label, "min_nodes": self._nodes[0], "max_nodes": self._nodes[1], "join": self._join,
            "run_uid": self._run_uid, "after": self._round, "address": self._address, "port": port,
            "last_call_s": self._conf.last_call_timeout, "timeout_s": self._conf.join_timeout,
        }  # fmt: skip
        if self._line.connected:
            self._line.send({"join": request})
        away_since, said = self._clock(), ""
        while True:
            if self._open(1.0 if self._objection else JOIN_RETRY_S):
                self._line.send({"join": request})
            self._line.wait(JOIN_RETRY_S)
            for message in self._listen():
                if "met" in message:
                    return _met(message["met"])
                if "refused" in message:
                    self._refuse(message["refused"])
                if "wait" in message:
                    self._objection, said = "", _tell(said, message["wait"])
            if self._line.connected and self._greeted and not self._objection:
                away_since = self._clock()
            elif self._clock() - away_since > 1.0:
                said = _tell(said, self._nobody_answers(self._clock() - away_since))

    def _open(self, retry_s: float = 1.0) -> bool:
        opened = self._line.open(retry_s)
        if opened:
            self._greeted, self._inbox = False, []
        return opened

    def _listen(self) -> Iterator[dict[str, Any]]:
        """What the agent said; greetings and errors are taken care of. Who stops in between goes on from there."""
        self._inbox += self._line.receive()
        while self._inbox:
            message = self._inbox.pop(0)
            if "ok" in message:
                self._greeted = self._known = True
            elif "error" in message:
                self._greeted, self._objection = False, str(message["error"])[:300]
                self._line.close(self._objection)
            yield message

    def _nobody_answers(self, away_s: float) -> str:
        """The line for people who wait; raises once that has been long enough."""
        patient = self._known and not self._objection
        limit_s = self._conf.join_timeout if patient else self._conf.agent_wait_s
        what = (
            f"no agent at {self._line.path} ({self._line.trouble or 'it does not answer'}): start one on this node "
            "with `rankpulse agent`, and give torchrun its run directory with RANKPULSE_DIR or --rdzv-endpoint"
        )
        if self._objection:
            what = f"the agent at {self._line.path} does not let this torchrun join: {self._objection}"
        if away_s > limit_s:
            say(what)
            raise api.RendezvousConnectionError(f"{what} (waited {limit_s:.0f} s)")
        return what

    def _refuse(self, refused: Any) -> None:
        kind, reason = ("", "")
        if isinstance(refused, dict):
            kind, reason = str(refused.get("kind", "")), str(refused.get("reason", ""))[:1000]
        self._refused = kind
        say(f"no round for this node: {reason}")
        raise _ERRORS.get(kind, api.RendezvousError)(f"rankpulse: {reason}")

    # -- while a round stands --

    def num_nodes_waiting(self) -> int:
        """How many wait for the next round, so that this one has to end. Never raises, never blocks."""
        try:
            if self._open():
                self._watch()
            for message in self._listen():
                self._fold(message.get("again"))
            if self._waiting and not self._restarting:
                self._restarting = True
                self._line.send({"restarting": {"round": self._round}})
        except Exception as error:  # torchelastic would die of it, and the job with it
            self._line.close(f"{type(error).__name__}: {error}")
        return self._waiting

    def _watch(self) -> None:
        """Tell an agent that has just been started, or found again, where we are."""
        self._line.send({"watch": {"run_uid": self._run_uid, "round": self._round, "join": self._join}})

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
            if self._open(retry_s=0.0) and self._round:
                self._watch()
            self._line.send({"leave": {"outcome": outcome, "reason": reason}})
            until = self._clock() + LEAVE_S
            while self._line.connected and self._clock() < until:
                self._line.wait(until - self._clock())
                if any("left" in message for message in self._listen()):
                    return True
        except Exception as error:
            self._line.close(f"{type(error).__name__}: {error}")
        finally:
            self._line.close()
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
    numbers = met and all(type(number) is int for number in (met.round, met.rank, met.nodes, met.port))
    if met is None or not numbers or not all(isinstance(text, str) for text in (met.run_uid, met.address)):
        raise api.RendezvousStateError(
            "the agent answered a join with what this rankpulse does not understand: run the same version in both"
        )
    return met


def _tell(said: str, text: object) -> str:
    """Say `text` unless it was said last; returns what was."""
    if not isinstance(text, str) or text == said:
        return said
    say(f"waiting: {text[:1000]}")
    return text


def say(text: str) -> None:
    try:
        sys.stderr.write(f"rankpulse: {text}\n")
        sys.stderr.flush()
    except Exception:  # stderr may be closed or absent
        return


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:300]
