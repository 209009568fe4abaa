"""Log lines on stderr: one line per thing that happened, said once, on change, never per tick."""

import logging
import sys

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_TOPICS_MAX = 10_000


class Log:
    """`say` always speaks; `change` speaks only when the text of its topic is another than last time."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("rankpulse.agent")
        self._last: dict[str, str] = {}

    def say(self, level: str, text: str) -> None:
        self._logger.log(_LEVELS[level], "%s", text)

    def change(self, topic: str, level: str, text: str) -> None:
        """Say `text` unless it is what was last said about `topic`."""
        if self._last.get(topic) == text:
            return
        if len(self._last) >= _TOPICS_MAX:
            self._last.clear()
        self._last[topic] = text
        self.say(level, text)


def to_stderr(node: str) -> Log:
    """The agent's log, one line each: time, level, node, text. What the store's client warns of goes there, too."""
    for logger in map(logging.getLogger, ("rankpulse.agent", "rankpulse.store")):
        if not logger.handlers:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s agent {node}: %(message)s"))
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
            logger.propagate = False
    return Log(logging.getLogger("rankpulse.agent"))
