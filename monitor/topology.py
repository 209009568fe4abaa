"""Reads the topology file that the settings name."""

import tomllib
from pathlib import Path
from typing import Final

from rankpulse.core import topology
from rankpulse.core.settings import BadSettings
from rankpulse.core.topology import BadTopology, Topology
from rankpulse.store.files import problem

BYTES_MAX: Final = 4 * 1024 * 1024


def read(path: str) -> Topology:
    """What the file says, nothing where none is named. Raises `BadSettings` with a sentence for each problem."""
    if not path:
        return Topology()
    if why := problem(path):
        raise BadSettings([f"monitor.topology_file: {why}"])
    try:
        return topology.parse(_tree(path))
    except BadTopology as error:
        raise BadSettings([f"monitor.topology_file: {path}: {text}" for text in error.problems]) from None


def _tree(path: str) -> dict[str, object]:
    try:
        with Path(path).open("rb") as file:
            data = file.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise BadTopology([f"larger than {BYTES_MAX} bytes"])
        return tomllib.loads(data.decode())
    except OSError as error:
        raise BadTopology([f"cannot be read ({error.strerror})"]) from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadTopology):
            raise
        raise BadTopology([f"is not valid TOML: {error}"]) from None
