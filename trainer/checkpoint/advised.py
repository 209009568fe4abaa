"""How often to save, and whether to save now, by the monitor's word: rank 0 asks its node's agent, and never waits.

The question goes out at one check point, and what has come is read at a later one. Without an agent, or with one that
is stopped or drowned, training goes on by what was heard last, or by the trainer's own estimate. No other rank asks: at
check points they do as rank 0 says, so that a word changes nothing before all hear of it.
"""

import json
import os
import socket
from typing import Any, Final

from rankpulse.trainer.agentline import LINE_MAX, socket_path

ASK_EVERY_S: Final = 30.0
_QUESTION: Final = b'{"op":"advice","v":1}\n'
_LARGEST_S: Final = 1e9


class Advised:
    """On rank 0 alone. `look` never raises, never blocks."""

    def __init__(self) -> None:
        self._line: socket.socket | None = None
        self._came = b""
        self._asked_at = float("-inf")
        self._heard_s: float | None = None
        self._wanted, self._answered = "", ""  # marks of a checkpoint that something waits for

    def save_now(self) -> bool:
        """Whether a checkpoint is waited for, as last heard; True once for each."""
        due, self._answered = self._wanted not in ("", self._answered), self._wanted or self._answered
        return due

    def look(self, now: float) -> float | None:
        """Seconds between saves as last heard; None: nothing was heard, or there is no advice. Asks anew when due."""
        try:
            self._listen()
            if now - self._asked_at >= ASK_EVERY_S:
                self._asked_at = now
                self._ask()
        except Exception:  # whatever it was: a word on the interval is worth no training step
            self.close()
        return self._heard_s

    def close(self) -> None:
        line, self._line, self._came = self._line, None, b""
        if line is not None:
            line.close()

    def _ask(self) -> None:
        self.close()
        flags = socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._line = socket.socket(socket.AF_UNIX, flags)
        self._line.connect(socket_path(os.environ))
        self._line.send(_QUESTION, socket.MSG_NOSIGNAL)

    def _listen(self) -> None:
        """What has come by now. One line is all that is read."""
        if self._line is None:
            return
        try:
            data = self._line.recv(LINE_MAX)
        except BlockingIOError:
            return
        self._came += data
        if not data or b"\n" in self._came or len(self._came) > LINE_MAX:
            came = self._came
            self.close()
            self._understand(came)

    def _understand(self, came: bytes) -> None:
        """An answer replaces what was heard before; that there is none now, too. Anything else changes nothing."""
        said = json.loads(came.partition(b"\n")[0]) if b"\n" in came else None
        if not isinstance(said, dict) or "advice" not in said:
            return
        wanted = said.get("save_now", "")
        self._wanted = wanted if isinstance(wanted, str) else ""
        advice = said["advice"]
        if advice is None:
            self._heard_s = None
        elif isinstance(advice, dict):
            self._heard_s = _seconds(advice.get("interval_s"))


def _seconds(value: Any) -> float | None:
    sound = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LARGEST_S
    return float(value) if sound else None
