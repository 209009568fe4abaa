"""The dashboards and rules that come with this version, for whoever wants to load them: no grafanalib is needed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

OUT: Final = Path(__file__).parent / "out"


def shipped() -> dict[str, bytes]:
    """Every file by its path below the folder: `….json` dashboards, `rules/….yml`."""
    return {str(path.relative_to(OUT)): path.read_bytes() for path in sorted(OUT.rglob("*")) if path.is_file()}


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
