"""`rankpulse ledger import`: gives the store back what it has lost. Creates, and never changes what is there."""

from collections.abc import Iterable, Sequence

import msgspec
import typer

from rankpulse.cli import books, show
from rankpulse.cli.failing import Failed
from rankpulse.cli.ledger_room import book_of
from rankpulse.core import codec, ledger_lines
from rankpulse.core.keys import Keys
from rankpulse.core.records import Record
from rankpulse.core.settings import Settings
from rankpulse.store import ledger_files
from rankpulse.store.api import Guard, Put, Store

BATCH, BATCH_BYTES = 32, 256 * 1024  # of one transaction


class Imported(msgspec.Struct, frozen=True):
    """What came of an import."""

    read: int
    there: int
    written: int
    refused: tuple[str, ...]


async def bring_back(settings: Settings, path: str) -> Imported:
    """Create what is missing. Raises `Failed`."""
    keys = Keys(settings.cluster)
    try:
        found = ledger_files.read(path, keys)
    except OSError as error:
        raise Failed(
            f"{path} cannot be read: {error.strerror}; name a file of `ledger export`, or ledger.export_dir"
        ) from None
    if not found.records and not found.refused:
        raise Failed(f"{path} holds no line of a ledger: name a .jsonl file or a directory with some")
    async with books.opened(settings) as store:
        missing = ledger_lines.to_import(found.records, await book_of(store, keys))
        written = 0
        for batch in batches(missing.items()):
            written += await _create(store, batch)
    return Imported(len(found.records), len(found.records) - written, written, tuple(found.refused))


def batches(records: Iterable[tuple[str, Record]]) -> Iterable[list[Put]]:
    """Few transactions, none of them too large."""
    batch: list[Put] = []
    size = 0
    for key, record in records:
        put = Put(key, codec.encode(record))
        if batch and (len(batch) >= BATCH or size + len(put.value) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(put)
        size += len(put.value)
    if batch:
        yield batch


async def _create(store: Store, batch: Sequence[Put]) -> int:
    """All at once; where one is there by now, one by one."""
    outcome = await store.txn([Guard(put.key, 0) for put in batch], list(batch))
    if outcome.done:
        return len(batch)
    return sum([(await store.txn([Guard(put.key, 0)], [put])).done for put in batch])


def imported(done: Imported) -> None:
    typer.echo(f"{done.written} records written, {done.there} of {done.read} were there already or are in its sums")
    for why in done.refused:
        typer.echo(f"refused: {show.plain(why)}", err=True)
