"""The dashboards and rules that come with this version, for whoever wants to load them: no grafanalib is needed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

OUT: Final = Path(__file__).parent / "out"


_RUNBOOKS: Final = b'"docs/runbooks/'  # as rules and the links of dashboards name them


def shipped(runbooks: str = "") -> dict[str, bytes]:
    """Every file by its path below the folder: `….json` dashboards, `rules/….yml`. `runbooks`: the pages' address."""
    files = {str(path.relative_to(OUT)): path.read_bytes() for path in sorted(OUT.rglob("*")) if path.is_file()}
    return {name: _pointing(content, runbooks) for name, content in files.items()} if runbooks else files


def _pointing(content: bytes, runbooks: str) -> bytes:
    address = quote(runbooks.rstrip("/"), safe="/:@?&=#%~+,;!$*()[]")  # within quotes, whatever is typed
    return content.replace(_RUNBOOKS, b'"' + address.encode() + b"/")


def differing(folder: Path, files: Mapping[str, bytes]) -> list[str]:
    """Which of `files` are missing in `folder` or say something else there."""
    return [name for name, content in files.items() if _content(folder / name) != content]


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put `files` into `folder`, which is made if need be. Raises `OSError`."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if _content(path) != content:
            path.write_bytes(content)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
