"""What torchrun was told about its rendezvous, checked. Pure.

torch hands everything on as text, and adds a `timeout` of its own that says nothing about a rendezvous.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

LABEL_BYTES = 240  # torchrun makes a folder of that name, with some letters behind it
LONGEST_S = 7 * 24 * 3600.0
_UNNAMED = ("", "none")  # torchrun's default
_ADDED_BY_TORCH = ("timeout",)


class BadConf(ValueError):
    """What is wrong, and what to write instead."""


class Conf(NamedTuple):
    """`--rdzv-conf`, in seconds."""

    last_call_timeout: float = 30.0  # once min_nodes are there, wait so long for still more, up to max_nodes
    join_timeout: float = 600.0  # give up without a round
    agent_wait_s: float = 30.0  # for this node's agent to answer at all, at the first join


def parse(given: Mapping[str, Any]) -> tuple[Conf, list[str]]:
    """The settings and what to warn about. Raises `BadConf`."""
    known = {key: _seconds(key, given[key]) for key in Conf._fields if key in given}
    other = sorted(str(key) for key in given if key not in (*Conf._fields, *_ADDED_BY_TORCH))
    if not other:
        return Conf(**known), []
    return Conf(**known), [
        f"--rdzv-conf {', '.join(other)}: unknown here and ignored; known are {', '.join(Conf._fields)}"
    ]


def _seconds(key: str, value: object) -> float:
    try:
        seconds = float(str(value).strip())
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_S:
        raise BadConf(f"--rdzv-conf {key}={value}: a number of seconds from 0 to {LONGEST_S:.0f}, as in {key}=60")
    return seconds


def label(run_id: str, max_nodes: int, endpoint: str, token: str) -> str:
    """The label under which torchruns find each other: the run's name, else the endpoint (accelerate gives no name).

    A job on one node needs none: then `token` makes one up. Raises `BadConf`.
    """
    if run_id in _UNNAMED:
        if max_nodes == 1:
            return f"unnamed-{token}"
        if not endpoint or endpoint.startswith("/"):
            raise BadConf(
                "give the run a name that is the same on all its nodes and that no other run has: --rdzv-id NAME, or "
                "PET_RDZV_ID=NAME in the environment (nodes that give the same name train together)"
            )
        run_id = endpoint
    try:
        size = len(run_id.encode())
    except UnicodeEncodeError:  # bytes of another encoding on the command line
        raise BadConf("--rdzv-id is no UTF-8 text: choose another name") from None
    if "/" in run_id and run_id is not endpoint:
        raise BadConf("--rdzv-id has a / in it, and torchrun makes a folder of that name for its logs: leave it out")
    if size > LABEL_BYTES:
        raise BadConf(f"--rdzv-id is longer than {LABEL_BYTES} bytes: choose a shorter one")
    return run_id
