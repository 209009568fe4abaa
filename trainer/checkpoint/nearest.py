"""The nearest complete copy of the newest checkpoint: local if it is there, else fetched from a durable target.

What is fetched lands in the local directory as if it had been saved there: files first, each whole or not at all, the
manifest last. The load then verifies it like any other. On rank 0; the directory is shared.
"""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from rankpulse.trainer.checkpoint import reader, writer
from rankpulse.trainer.checkpoint.durable import whole
from rankpulse.trainer.checkpoint.errors import NothingVerified
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import MANIFEST
from rankpulse.trainer.checkpoint.target import Copy, Target

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
TRIED_MAX: Final = 5  # copies that cannot be fetched, until it is left to what is local


def fetch_nearest(
    files: Files, directory: str, targets: Sequence[Target], limit: int | None, say: Callable[[str], None]
) -> str:
    """See that the newest complete checkpoint is in `directory`: the path of what was fetched, "" when nothing was.

    targets: the nearest first. limit: only checkpoints of earlier steps. Raises NothingVerified where nothing is here
    and no target can be looked at: that is no fresh start.
    """
    listing = reader.scan(directory)
    aside = _aside(listing)
    here = [found.step for found in listing.committed if (limit is None or found.step < limit) and whole(found.path)]
    offered, troubles = _offered(targets)
    for trouble in troubles:
        say(trouble)
    if not listing.committed and troubles and not offered:
        raise NothingVerified(
            f"{directory} has no checkpoint, and what is elsewhere cannot be known: {'; '.join(troubles)}."
            " To start from zero all the same, leave the targets out."
        )
    newer = [
        (copy, target)
        for copy, target in offered
        if copy.step > max(here, default=-1) and (limit is None or copy.step < limit) and copy.name not in aside
    ]
    for copy, target in newer[:TRIED_MAX]:
        try:
            path = _fetched(files, directory, copy, target)
        except Exception as error:  # its file system's own; another copy may do
            if isinstance(error, OSError) and error.errno in FULL:
                _given_up(files, os.path.join(directory, copy.name))
            say(f"{copy.name} could not be fetched from {target.url}: {type(error).__name__}: {error}")
        else:
            say(f"{copy.name} was fetched from {target.url}")
            return path
    return ""


def withdraw_aside(directory: str, targets: Sequence[Target], say: Callable[[str], None]) -> None:
    """What was set aside here is no copy there any more: else it would come back when this directory is lost, and be
    counted among those that stay. Never raises; the next load tries again."""
    try:
        aside = _aside(reader.scan(directory))
    except NothingVerified:
        return
    for target in targets if aside else ():
        try:
            gone = [name for name in target.names() if name in aside and target.withdraw(name)]
        except Exception as error:  # its file system's own
            say(f"what was set aside stays a copy at {target.url}: {type(error).__name__}: {error}")
        else:
            for name in gone:
                say(f"{name} was set aside, and is no copy at {target.url} any more: it is kept there")


def _aside(listing: reader.Listing) -> set[str]:
    return {os.path.basename(path).removeprefix(reader.ASIDE) for path in listing.aside}


def _offered(targets: Sequence[Target]) -> tuple[list[tuple[Copy, Target]], list[str]]:
    """The copies of all targets, the newest first, of one step the nearest first; and which could not be looked at."""
    found: list[tuple[Copy, Target]] = []
    troubles = []
    for target in targets:
        try:
            found += [(copy, target) for copy in target.copies()]
        except Exception as error:
            troubles.append(f"{target.url} cannot be looked at: {type(error).__name__}: {error}")
    return sorted(found, key=lambda pair: -pair[0].step), troubles


def _fetched(files: Files, directory: str, copy: Copy, target: Target) -> str:
    """Files that are here in their size stay: it may be that one alone was lost."""
    writer.ensure(files, directory)
    path = os.path.join(directory, copy.name)
    with suppress(FileExistsError):
        files.mkdir(path)
        files.sync_dir(directory)
    for file in sorted(copy.files, key=lambda name: name == MANIFEST):  # the manifest last
        local = os.path.join(path, file)
        with suppress(OSError):
            if file != MANIFEST and os.path.getsize(local) == copy.files[file]:
                continue
        written = writer.write_file(files, local, target.pieces(copy, file))
        if written.bytes != copy.files[file]:
            files.unlink(local)
            raise OSError(f"{file} has {written.bytes} bytes there and {copy.files[file]} were expected")
    return path


def _given_up(files: Files, path: str) -> None:
    """What was fetched of it takes no room from the next save. Elsewhere it stays: the next load goes on from it."""
    if not os.path.exists(os.path.join(path, MANIFEST)):
        writer.abandon(files, path)
