"""Transactions of the rendezvous: all guards or nothing, and never tried again before it is known what came of it."""

import contextlib

from rankpulse.agent.log import Log
from rankpulse.agent.mirror import Mirror
from rankpulse.core import codec
from rankpulse.core.rendezvous import Txn
from rankpulse.store.api import Delete, Guard, Put, Store, StoreError, Uncertain, Write


async def write(store: Store, mirror: Mirror, log: Log, txn: Txn) -> bool:
    """Whether it was done; then the mirror has it. Else the mirror has what stands there now, as far as can be had."""
    writes: list[Write] = [Put(key, codec.encode(record)) for key, record in txn.puts]
    writes += [Delete(key) for key in txn.deletes]
    try:
        outcome = None
        with contextlib.suppress(Uncertain):  # it may have been done: read
            outcome = await store.txn([Guard(key, modified) for key, modified in txn.guards], writes)
        if outcome is None or not outcome.done:
            keys = [key for key, _ in txn.guards] + [key for key, _ in txn.puts]
            await mirror.look(store, dict.fromkeys(keys))
            return False
    except StoreError as error:
        log.change("rdzv-write", "warning", f"rendezvous: {error} (trying again)")
        return False
    log.change("rdzv-write", "info", "rendezvous: the store takes what is written")
    for key in txn.deletes:
        mirror.fold(key, None, outcome.revision)
    for key, record in txn.puts:
        mirror.know(key, record, outcome.revision)
    mirror.changed()
    return True
