"""Why did a worker process end? One exit at a time; `diagnosis` weighs them together."""

import re
from enum import IntEnum
from typing import NamedTuple

from rankpulse.core.records import Launcher, Member, Observation
from rankpulse.core.words import printable

SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
}  # fmt: skip
_STOP_SIGNALS = (1, 2, 3, 15)  # those that torchelastic itself obeys and passes on
_STOP_CODES = (129, 130, 131, 143)  # a shell or a handler that passed the signal on
_STOP_ERRORS = ("KeyboardInterrupt", "SignalException")
_PEER_LOST = re.compile(
    r"connection (closed|reset|refused|was closed)|closed by peer|broken pipe|remote process exited"
    r"|socket (closed|timeout)|peer.{0,40}(closed|reset|died|exited)|connectfullmesh failed|timed out waiting"
    r"|wait timeout|timed out after|recvvalue failed|failed to (recv|send)"
    r"|nccl (communicator was aborted|remote error)|aborted due to",
    re.IGNORECASE,
)
_PEER_ERRORS = ("DistBackendError", "DistNetworkError", "DistStoreError", "ConnectionResetError", "BrokenPipeError")


class Kind(IntEnum):
    """Ordered by how well an exit explains the others: the highest kind is the cause."""

    CLEAN = 0  # ended by itself, without error
    ORDERED = 1  # killed at our own order
    VICTIM = 2  # lost its peers: somebody else went first
    STOPPED = 3  # asked to end, by a person, a scheduler, or torchelastic
    ABORTED = 4  # SIGABRT, or an error code without a word: often a consequence, sometimes the cause
    FAILED = 5  # its own exception or exit code
    KILLED = 6  # a signal that nobody sends out of courtesy


class Exit(NamedTuple):
    """The end of one worker process, as its agent saw it."""

    key: str  # store key of the observation
    member: Member
    kind: Kind
    signal: int | None
    terminated: bool  # by SIGTERM, which torchelastic uses as well as people
    what: str  # in plain words
    launcher: Launcher
    received_at: float
    revision: int
    explained: bool = False  # it left an exception
    held: bool = False  # its holder waits for a verdict: torchelastic has not noticed
    step: int = -1  # the last that it told of, to the moment; beats are up to a second older
    wordless: bool = False  # with code 0, and not by the end of its interpreter: `os._exit(0)`, for one
    place: str = ""  # the collective that it called last, where it told of one


def exit_of(key: str, obs: Observation, received_at: float, revision: int) -> Exit:
    member = Member(obs.rank, obs.node, obs.local_rank, obs.pid, obs.start)
    signal = obs.detail.get("signal")
    number = signal if isinstance(signal, int) else None
    launcher = Launcher(obs.node, obs.run.launcher if obs.run is not None else "")
    terminated = number == 15 or obs.detail.get("code") == 143
    held, explained = obs.detail.get("held") is True, bool(obs.detail.get("error"))
    what, step = in_words(obs), obs.detail.get("step")
    step = step if isinstance(step, int) else -1
    wordless = obs.detail.get("code") == 0 and obs.detail.get("closed") is False and not obs.detail.get("unattached")
    place = obs.detail.get("place")
    said = (explained, held, step, wordless, place if isinstance(place, str) else "")
    return Exit(key, member, kind_of(obs), number, terminated, what, launcher, received_at, revision, *said)


def kind_of(obs: Observation) -> Kind:
    """The kind of exit that a `worker_exited` observation reports. Total over any detail."""
    detail = obs.detail
    code, signal = detail.get("code"), detail.get("signal")
    error, message = str(detail.get("error") or ""), str(detail.get("message") or "")
    if detail.get("order_id"):
        return Kind.ORDERED
    if signal in _STOP_SIGNALS or code in _STOP_CODES or error in _STOP_ERRORS:
        return Kind.STOPPED
    if signal is not None:
        return Kind.ABORTED if signal == 6 else Kind.KILLED
    if code == 0:
        return Kind.CLEAN
    if error in _PEER_ERRORS or _PEER_LOST.search(message):
        return Kind.VICTIM
    if error:
        return Kind.FAILED
    if detail.get("closed"):
        return Kind.CLEAN if code is None else Kind.FAILED
    # no status and no goodbye: the interpreter had no chance to say one
    return Kind.KILLED if code is None else Kind.ABORTED if detail.get("unattached") else Kind.FAILED


def in_words(obs: Observation) -> str:
    detail = obs.detail
    code, signal = detail.get("code"), detail.get("signal")
    error, message = str(detail.get("error") or ""), str(detail.get("message") or "")
    if signal is not None:
        name = SIGNALS.get(signal, f"signal {signal}") if isinstance(signal, int) else f"signal {signal}"
        text = f"killed by {name}" if kind_of(obs) is not Kind.STOPPED else f"ended by {name}"
    elif code is None and not detail.get("closed") and not error:
        text = "gone without a word before an agent could watch it: killed, by whom is not known"
    elif code is None:
        text = "ended before an agent could watch it"
    else:
        text = f"exited with code {code}"
    return f"{text} ({printable(error, 80)}: {printable(message)})" if error else text
