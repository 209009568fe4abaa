"""torchrun's conversation with its node's agent: greetings, objections, and how long an agent may be away."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from rankpulse.trainer.agentline import AgentLine

RETRY_S = 1.0
JOIN_RETRY_S = 0.25  # while somebody waits for the answer
AWAY_S = 1.0  # an agent that is restarting is nothing to talk about
SILENT_S = 60.0  # an agent that has said nothing for so long is asked anew: it may be frozen


class NoAgent(Exception):
    """No agent has answered for long enough; the text says where it was looked for and what to do."""


class Session:
    """`patience`: seconds for the first answer ever, and for an agent that has answered before."""

    def __init__(
        self,
        line: AgentLine,
        patience: tuple[float, float],
        *,
        silent_s: float = SILENT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.line = line
        self._patience, self._silent_s, self._clock = patience, silent_s, clock
        self._inbox: list[dict[str, Any]] = []
        self._greeted = False  # on this line
        self._known = False  # an agent has answered before
        self._objection = ""  # why the agent does not want to talk to us
        self._said = ""
        self._heard_at = self._there_at = clock()

    def begin(self) -> None:
        """From now on somebody waits for an answer."""
        self._objection = self._said = ""
        self._heard_at = self._there_at = self._clock()

    def open(self, retry_s: float = RETRY_S) -> bool:
        """True when this call has opened the line: say what the session is about."""
        opened = self.line.open(RETRY_S if self._objection else retry_s)
        if opened:
            self._greeted, self._inbox, self._heard_at = False, [], self._clock()
        return opened

    def listen(self) -> Iterator[dict[str, Any]]:
        """What the agent said; greetings and errors are taken care of. Who stops in between goes on from there."""
        self._inbox += self.line.receive()
        while self._inbox:
            message = self._inbox.pop(0)
            self._heard_at = self._clock()
            if "ok" in message:
                self._greeted = self._known = True
            elif "error" in message:
                self._greeted, self._objection = False, str(message["error"])[:300]
                self.line.close(self._objection)
            elif "wait" in message:
                self._objection = ""
                self.tell(str(message["wait"]))
            yield message

    def mind(self) -> None:
        """To be called while somebody waits: say that the agent is away. Raises `NoAgent` when it is for too long."""
        now = self._clock()
        if self.line.connected and self._greeted and not self._objection:
            self._there_at = now
            if now - self._heard_at > self._silent_s:
                self.line.close("it has fallen silent")
        elif now - self._there_at > AWAY_S:
            limit_s = self._patience[self._known and not self._objection]
            if now - self._there_at > limit_s:
                say(self._trouble())
                raise NoAgent(f"{self._trouble()} (waited {limit_s:.0f} s)")
            self.tell(self._trouble())

    def _trouble(self) -> str:
        if self._objection:
            return f"the agent at {self.line.path} does not let this torchrun join: {self._objection}"
        return (
            f"no agent at {self.line.path} ({self.line.trouble or 'it does not answer'}): start one on this node with "
            "`rankpulse agent`, and give torchrun its run directory with RANKPULSE_DIR or --rdzv-endpoint"
        )

    def tell(self, text: str) -> None:
        """Why it waits, for people: not twice in a row."""
        if text != self._said:
            self._said = text
            say(f"waiting: {text[:1000]}")


def say(text: str) -> None:
    try:
        sys.stderr.write(f"rankpulse: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # stderr may be closed or absent
        return
