"""Writes the dashboards and rules: `python -m rankpulse.dashboards.build [--check]`. The same code, the same bytes."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rankpulse.dashboards import alertmanager, kubernetes, rules, runbooks
from rankpulse.dashboards.shipped import OUT, differing, write

REPO: Final = Path(__file__).resolve().parents[1]
HEAD: Final = "# Made by `make dashboards` from dashboards/rules.py: change it there.\n"


def built() -> dict[str, bytes]:
    """Every file by its path below the folder."""
    files = {f"{board['uid']}.json": json.dumps(board, indent=1, sort_keys=True) + "\n" for board in _boards()}
    files["rules/rankpulse.yml"] = HEAD + as_yaml(rules.build())
    return {name: text.encode() for name, text in files.items()}


def beside() -> dict[str, bytes]:
    """What is made of rules and dashboards and lies elsewhere in the repository: by its path there."""
    files = {
        alertmanager.EXAMPLE: alertmanager.HEAD + as_yaml(alertmanager.build()),
        runbooks.INDEX: runbooks.index(rules.GROUPS.items()),
    }
    for name, value in kubernetes.files(rules.build(), _boards()).items():
        files[name] = kubernetes.HEAD + as_yaml(value)
    return {name: text.encode() for name, text in files.items()}


def _boards() -> list[dict[str, Any]]:
    from rankpulse.dashboards import fleet, incidents, itself, node, reliability, run

    return [one.build() for one in (fleet, incidents, itself, node, reliability, run)]


def as_yaml(value: Any, indent: int = 0) -> str:
    """Maps, lists, numbers and texts as block YAML. Texts are written as in JSON, which YAML reads alike."""
    pad = "  " * indent
    if isinstance(value, dict):
        return "".join(f"{pad}{key}:{_inner(item, indent)}" for key, item in value.items())
    assert isinstance(value, list)
    return "".join(f"{pad}- {as_yaml(item, indent + 1).lstrip()}" for item in value)


def _inner(value: Any, indent: int) -> str:
    if isinstance(value, dict | list) and not _is_line(value):
        return "\n" + as_yaml(value, indent + 1)
    return f" {json.dumps(value, ensure_ascii=False)}\n"


def _is_line(value: Any) -> bool:
    """A list of texts stands in one line, as JSON."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def main(argv: list[str] | None = None) -> int:
    """Exit code 1 when `--check` finds a file that would change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; say what would change")
    check = parser.parse_args(argv).check
    changed = [name for folder, files in ((OUT, built()), (REPO, beside())) for name in _put(folder, files, check)]
    for name in changed:
        print(f"{name}: {'is not what the code makes; run make dashboards' if check else 'written'}")
    return 1 if check and changed else 0


def _put(folder: Path, files: Mapping[str, bytes], check: bool) -> list[str]:
    """Write what differs, unless it is only asked; returns the names of that."""
    changed = differing(folder, files)
    if not check:
        write(folder, files)
    return changed


def read(folder: Path = OUT) -> list[dict[str, Any]]:
    """The dashboards that lie in `folder`."""
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]


if __name__ == "__main__":
    sys.exit(main())
