"""The worker holder: stands between torchrun and one trainer, so that a trainer's death is no failure yet.

    torchrun --no-python ... python -m rankpulse.trainer.hold python -u train.py

A trainer that ends abnormally is reported to the agent, and the holder stays: torchrun sees no failure and burns no
restart. Then either everybody meets again (torchrun stops the holder), or the policy gives up (`release`), or nobody
says anything for RANKPULSE_HOLD_S; then the holder ends exactly as the trainer did. Nothing is hidden: exit code,
signal and output are the trainer's. No threads; the trainer itself is an ordinary child that knows nothing of it.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rankpulse.trainer import kernel
from rankpulse.trainer.agentline import AgentLine, socket_path

PROTOCOL = 1
HOLD_MAX = 20  # times hold_s: an agent that only ever asks for patience must not make a hang of an error
RETRY_S = 1.0
USAGE = """\
usage: rankpulse hold COMMAND [ARG]...
       torchrun --no-python ... rankpulse hold python -u train.py

Runs COMMAND as a worker of torchrun. If it crashes, its agent is told and torchrun is not, so that all nodes can
meet again without burning a restart. Exit code, signal and output stay those of COMMAND.

RANKPULSE_HOLD_S   seconds to stay after a crash without a word from the agent (15; 0: do not hold)
RANKPULSE_GRACE_S  seconds from SIGTERM to SIGKILL for COMMAND (5; 0: at once)
RANKPULSE_DIR      the agent's run directory (/dev/shm/rankpulse)
"""
# The terminal, and torchrun, send these to the whole process group: the trainer has them already.
_FOR_ALL = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_NOTHING = (signal.SIGUSR1, signal.SIGUSR2)  # preemption notices: for the trainer, and no reason to end
_SIGNALS = (signal.SIGTERM, *_FOR_ALL, *_NOTHING, signal.SIGCHLD)


class Patience(NamedTuple):
    """In seconds."""

    hold_s: float = 15.0
    grace_s: float = 5.0


class CannotStart(Exception):
    """The command cannot be run; the text says why. `code`: as a shell would end."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def patience(environ: Mapping[str, str]) -> Patience:
    """Raises ValueError in plain words."""
    return Patience(_seconds(environ, "RANKPULSE_HOLD_S", 15.0), _seconds(environ, "RANKPULSE_GRACE_S", 5.0))


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name, "").strip()
    try:
        seconds = float(text or default)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86400:
        raise ValueError(f"{name}={text}: a number of seconds from 0 to 86400")
    return seconds


def start(argv: Sequence[str], mask: "set[signal.Signals | int]") -> int:
    """Run `argv` as a child that dies with us; returns its pid. Raises `CannotStart`."""
    heard, told = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(argv, mask, parent, told)
    os.close(told)
    with os.fdopen(heard) as file:
        trouble = file.read()
    if trouble:
        os.waitpid(pid, 0)
        raise CannotStart(f"{argv[0]}: {os.strerror(int(trouble))}", 127 if int(trouble) == 2 else 126)
    return pid


def _become(argv: Sequence[str], mask: "set[signal.Signals | int]", parent: int, told: int) -> None:
    """In the child: the command, with the signals as we found them."""
    try:
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, programs do not expect that
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvp(argv[0], list(argv))  # noqa: S606 (a shell is what it must not have)
    except OSError as error:
        os.write(told, str(error.errno).encode())
    finally:
        os._exit(127)


class Holder:
    """One trainer and what becomes of it. `run` returns its wait status when it is time to end likewise."""

    def __init__(self, child: int, rank: str, waits: Patience, signals: int, line: AgentLine) -> None:
        self._child, self._rank, self._patience, self._signals, self._line = child, rank, waits, signals, line
        self._status: int | None = None  # the trainer's, once it has ended
        self._stopping = False  # we were told to end
        self._kill_at = self._heard_at = self._ended_at = float("inf")
        self._over = ""  # why there is nothing more to wait for

    def run(self) -> int:
        self._talk()
        while self._status is None or not self._over:
            self._line.wait(self._until() - time.monotonic(), [self._signals])
            for arrived in kernel.read_signals(self._signals):
                self._signal(arrived)
            self._talk()
            self._look_at_the_clock(time.monotonic())
        return self._status

    def _until(self) -> float:
        """When to look again though nothing happens."""
        retry_at = float("inf") if self._line.connected or not self._patience.hold_s else time.monotonic() + RETRY_S
        return min(retry_at, self._kill_at, self._give_up_at(), time.monotonic() + 3600.0)

    def _give_up_at(self) -> float:
        hold_s = self._patience.hold_s
        return min(self._heard_at + hold_s, self._ended_at + HOLD_MAX * hold_s)

    def _talk(self) -> None:
        if not self._patience.hold_s:
            return
        if self._line.open(RETRY_S / 2) and self._status is not None:
            self._report(self._status)
        for message in self._line.receive():
            if "wait" in message and self._status is not None:
                self._heard_at = time.monotonic()
            if "release" in message:
                self._over = f"the policy gives up: {str(message['release'])[:500]}"
            if "error" in message:
                self._line.close(str(message["error"])[:300])

    def _report(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self._line.send({"ended": {"code": code, "signal": None} if code >= 0 else {"code": None, "signal": -code}})

    def _signal(self, arrived: kernel.Arrived) -> None:
        if arrived.number == signal.SIGCHLD:
            self._reap()
        elif arrived.number in _NOTHING:
            return
        elif self._status is not None:
            self._over = "stopped"
        else:
            self._stopping = True
            if arrived.number == signal.SIGTERM:
                self._stop(arrived.sender)

    def _stop(self, sender: int) -> None:
        """Pass the end on, once, and see to it that it comes."""
        if not kernel.reached_the_group(sender):
            os.kill(self._child, signal.SIGTERM)
        self._kill_at = min(self._kill_at, time.monotonic() + self._patience.grace_s)

    def _reap(self) -> None:
        if self._status is not None:
            return
        pid, status = os.waitpid(self._child, os.WNOHANG)
        if pid == 0:
            return
        self._status = status
        self._kill_at = float("inf")
        if status == 0 or self._stopping or not self._patience.hold_s:
            self._over = "ended"
            return
        self._report(status)
        if self._over:  # released before it came to that
            return
        self._ended_at = self._heard_at = time.monotonic()
        say(
            f"{self._name()} {how(status)}. Held, so that all can meet again and torchrun burns no restart; without a "
            f"word from the agent for {self._patience.hold_s:g} s it ends likewise."
        )

    def _look_at_the_clock(self, now: float) -> None:
        if now >= self._kill_at:
            self._kill_at = float("inf")
            os.kill(self._child, signal.SIGKILL)
        if self._status is None or (not self._over and now < self._give_up_at()):
            return
        if not self._over:
            trouble = f" ({self._line.trouble})" if self._line.trouble else ""
            self._over = f"no word from the agent at {self._line.path}{trouble}"
        if self._over not in ("ended", "stopped"):
            say(f"{self._name()} {how(self._status)}, and ends so now: {self._over}")

    def _name(self) -> str:
        return f"rank {self._rank} (pid {self._child})" if self._rank else f"pid {self._child}"


def seat(environ: Mapping[str, str]) -> dict[str, int]:
    """Which rank the trainer was given: should it end before it attaches, nobody else can say."""
    known = {"rank": "RANK", "local_rank": "LOCAL_RANK", "world": "WORLD_SIZE"}
    given = {name: environ.get(variable, "") for name, variable in known.items()}
    return {name: int(text) for name, text in given.items() if text.isascii() and text.isdigit() and len(text) < 10}


def how(status: int) -> str:
    """How a process ended, in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def say(text: str) -> None:
    try:
        os.write(2, f"rankpulse: {text}\n".encode("utf-8", "replace"))
    except OSError:
        return


def main(argv: Sequence[str]) -> int:
    """Run the command `argv`; returns an exit code only when that could not be done."""
    argv = argv[1:] if argv[:1] == ["--"] else argv
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0 if argv else 2
    try:
        return _hold(argv, patience(os.environ))
    except (ValueError, CannotStart) as error:
        say(f"hold: {error}")
        return error.code if isinstance(error, CannotStart) else 2


def _hold(argv: Sequence[str], waits: Patience) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, there would be nothing to wait for
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    parent = os.getppid()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        kernel.die_with_parent(signal.SIGTERM)
        if os.getppid() != parent:
            return 1
    signals = kernel.signal_fd(_SIGNALS)
    os.environ["RANKPULSE_GRACE_S"] = f"{waits.grace_s:g}"  # the trainer must have spoken its last words by then
    child = start(argv, before)
    line = AgentLine(socket_path(os.environ), {"op": "hold", "v": PROTOCOL, "pid": child, **seat(os.environ)})
    status = Holder(child, os.environ.get("RANK", "")[:12], waits, signals, line).run()
    line.close()
    kernel.end_like(status)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
