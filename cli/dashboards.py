"""`rankpulse dashboards`: puts the dashboards and rules of this version where Grafana and Prometheus find them."""

from collections.abc import Callable
from pathlib import Path

from rankpulse.cli.failing import Failed
from rankpulse.dashboards.shipped import differing, shipped, write


def run(out: str, check: bool, runbooks: str, tell: Callable[[str], None]) -> int:
    """Write the files below `out`, or with `check` only say which of them differ. Returns the exit code.

    `runbooks`: where the alerts' pages can be read; "" leaves their paths in the repository.

    Raises `Failed` when `out` cannot be read or written.
    """
    folder, files = Path(out), shipped(runbooks)
    if not files:
        raise Failed("this installation came without its dashboards: install rankpulse again")
    try:
        changed = differing(folder, files)
        if not check:
            write(folder, files)
    except OSError as error:
        raise Failed(f"{error.filename or out}: {error.strerror}; choose another folder with --out") from error
    return _report(folder, list(files), changed, check, tell)


def _report(folder: Path, names: list[str], changed: list[str], check: bool, tell: Callable[[str], None]) -> int:
    for name in names:
        if check:
            tell(f"{folder / name}: {'missing or not of this version' if name in changed else 'as in this version'}")
        else:
            tell(f"{folder / name}: {'written' if name in changed else 'unchanged'}")
    if not check:
        tell("import the .json files into Grafana, and name the .yml files under rule_files in prometheus.yml")
    elif changed:
        tell(f"to bring them up to date: rankpulse dashboards --out {folder}")
    return 1 if check and changed else 0
