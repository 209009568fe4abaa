"""What a checkpoint's fate tells the monitor, by way of the node's agent: fire and forget.

The agent's socket takes one line and nobody waits for an answer. Without an agent, or with one that is stopped or
drowned, training goes on as if nothing had been said.
"""

import json
import math
import os
import socket
from typing import TypeAlias

from rankpulse.trainer.agentline import LINE_MAX, socket_path
from rankpulse.trainer.plain import plain_float, plain_int

_PROTOCOL = 1
_Said: TypeAlias = dict[str, str | int | float | bool | None]


def tell(event: str, **said: str | int | float | bool) -> bool:
    """Tell the agent of `event` ("saved", "save_failed", "loaded", "refused", "uploaded", ...) and what is to be said.

    True when the line went out; nobody knows whether it was read. Never raises, never blocks. Values that are neither
    text nor finite numbers are left out, and the longest texts are cut so that the line has at most 4096 bytes.
    """
    try:
        return _send(_line(event, said))
    except Exception:  # whatever it was: a checkpoint is worth more than the word about it
        return False


def _line(event: str, said: dict[str, str | int | float | bool]) -> bytes:
    plain = {key: _plain(value) for key, value in said.items()}
    message: _Said = {"op": "checkpoint", "v": _PROTOCOL, "event": _plain(event)}
    message |= {key: value for key, value in plain.items() if value is not None and key not in message}
    while len(line := _encoded(message)) > LINE_MAX:
        longest = max(message, key=lambda key: len(_encoded({"": message[key]})))
        text = message[longest]
        if not isinstance(text, str) or len(text) < 8:
            return b""
        message[longest] = text[: len(text) // 2] + "…"
    return line


def _encoded(message: _Said) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _plain(value: object) -> str | int | float | bool | None:
    """`value` as the agent takes it, None when it would not: it takes no halves of characters and no NaN."""
    if isinstance(value, str):
        return str(value)[:LINE_MAX].encode("utf-8", "replace").decode()
    if isinstance(value, bool):
        return value
    whole = None if isinstance(value, float) else plain_int(value)
    if whole is not None:
        return whole if abs(whole) < 2**63 else None
    number = plain_float(value)
    return number if math.isfinite(number) else None


def _send(line: bytes) -> bool:
    if not line:
        return False
    flags = socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with socket.socket(socket.AF_UNIX, flags) as agent:
        agent.connect(socket_path(os.environ))
        return agent.send(line, socket.MSG_NOSIGNAL) == len(line)
