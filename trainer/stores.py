"""The TCPStore of a round: one server per torchrun and join, of which the round uses that of group rank 0.

Nothing here waits long inside of torch, where no signal is met: what may take its time is tried with plain sockets
first, and `tick(seconds)` passes the time between two looks.
"""

import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

REACH_S = 20.0  # for the store of rank 0 to be reached, and for everybody to be there
READ_S = 60.0  # for torchelastic's own reads afterwards
_PROBE_S = 2.0
_LOOK_S = 0.05
_OUT = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))  # never reached: only the way there is asked
Tick = Callable[[float], None]


class NotTogether(Exception):
    """The members of the round did not come together in its store; the text says who or why."""


def own_address(local_addr: str | None, max_nodes: int) -> str:
    """Where the other nodes reach this one: as told, else the address of the way out, else the host's name."""
    if local_addr:
        return local_addr
    if max_nodes == 1:
        return "127.0.0.1"
    return next(filter(None, (_way_out(*way) for way in _OUT)), "") or socket.getfqdn()


def _way_out(family: int, target: str) -> str:
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        try:
            way.connect((target, 9))
            address = str(way.getsockname()[0])
        except OSError:
            return ""
    return "" if address.startswith(("127.", "::1", "0.")) else address


def serve() -> Any:
    """A fresh server on a free port, open to all addresses."""
    return _store("127.0.0.1", 0, is_master=True)


def connect(address: str, port: int, until: float, tick: Tick) -> Any:
    """A client of the store of rank 0. Raises `NotTogether`."""
    while True:
        try:
            with socket.create_connection((address, port), timeout=_PROBE_S):
                break
        except OSError as error:
            if time.monotonic() > until:
                raise NotTogether(
                    f"the store of the round at {address} port {port} cannot be reached from here "
                    f"({error.strerror or error}): let the nodes reach each other, and give each torchrun the address "
                    "that the others reach it by with --local-addr"
                ) from None
        tick(_LOOK_S * 4)
    try:
        return _store(address, port, is_master=False)
    except (RuntimeError, ValueError, OSError) as error:  # torch's own kinds; a signal's exception is none of them
        raise NotTogether(f"the store of the round at {address} port {port} went away: {_first_line(error)}") from None


def _store(address: str, port: int, *, is_master: bool) -> Any:
    patience = timedelta(seconds=REACH_S)
    store = dist.TCPStore(address, port, is_master=is_master, wait_for_workers=False, timeout=patience)
    store.set_timeout(timedelta(seconds=READ_S))
    return store


def gather(store: Any, rank: int, nodes: int, until: float, tick: Tick) -> None:
    """Return once all nodes of the round are in its store, so that nobody waits inside of torch for one who died.

    Raises `NotTogether`.
    """
    here = {f"rankpulse/here/{other}": other for other in range(1, nodes)}
    try:
        if rank:
            store.set(f"rankpulse/here/{rank}", "1")
        while not store.check(["rankpulse/go"] if rank else list(here)):
            if time.monotonic() > until:
                raise NotTogether(_missing(store, rank, here))
            tick(_LOOK_S)
        if not rank:
            store.set("rankpulse/go", "1")
    except RuntimeError as error:  # DistNetworkError and its kin are RuntimeErrors
        raise NotTogether(f"the store of the round went away: {_first_line(error)}") from None


def _missing(store: Any, rank: int, here: dict[str, int]) -> str:
    if rank:
        return "the torchrun of group rank 0 did not answer"
    missing = [str(other) for key, other in here.items() if not store.check([key])]
    return f"no word from group rank {', '.join(missing[:20])}: is the store of this node reached by all others?"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
