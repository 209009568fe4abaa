"""Writes the dashboards and rules: `python -m rankpulse.dashboards.build [--check]`. The same code, the same bytes."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from rankpulse.dashboards.shipped import OUT, differing, write

HEAD: Final = "# Made by `make dashboards` from dashboards/rules.py: change it there.\n"


def built() -> dict[str, bytes]:
    """Every file by its path below the folder."""
    from rankpulse.dashboards import fleet, reliability, rules, run

    boards = {
        "rankpulse-fleet.json": fleet.build(),
        "rankpulse-reliability.json": reliability.build(),
        "rankpulse-run.json": run.build(),
    }
    files = {name: json.dumps(board, indent=1, sort_keys=True) + "\n" for name, board in boards.items()}
    files["rules/rankpulse.yml"] = HEAD + as_yaml(rules.build())
    return {name: text.encode() for name, text in files.items()}


def as_yaml(value: Any, indent: int = 0) -> str:
    """Maps, lists, numbers and texts as block YAML. Texts are written as in JSON, which YAML reads alike."""
    pad = "  " * indent
    if isinstance(value, dict):
        return "".join(f"{pad}{key}:{_inner(item, indent)}" for key, item in value.items())
    assert isinstance(value, list)
    return "".join(f"{pad}- {as_yaml(item, indent + 1).lstrip()}" for item in value)


def _inner(value: Any, indent: int) -> str:
    if isinstance(value, dict | list):
        return "\n" + as_yaml(value, indent + 1)
    return f" {json.dumps(value, ensure_ascii=False)}\n"


def main(argv: list[str] | None = None) -> int:
    """Exit code 1 when `--check` finds a file that would change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; say what would change")
    check, files = parser.parse_args(argv).check, built()
    changed = differing(OUT, files)
    for name in changed:
        print(f"{name}: {'is not what the code makes; run make dashboards' if check else 'written'}")
    if not check:
        write(OUT, files)
    return 1 if check and changed else 0


def read(folder: Path = OUT) -> list[dict[str, Any]]:
    """The dashboards that lie in `folder`."""
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]


if __name__ == "__main__":
    sys.exit(main())
