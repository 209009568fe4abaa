"""The page of all commands, docs/reference/commands.md, made from the help of the commands themselves.

python -m rankpulse.cli.commands_page docs/reference/commands.md     # writes it anew
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer.main
from typer.testing import CliRunner

from rankpulse.cli.main import app

WIDTH: Final = 110
HEAD: Final = """\
# Commands

Made from the commands' own help by `make commands`; do not edit. Exit codes: 0 well, 1 something is wrong (the text
says what), 2 asked wrongly. `--json` prints one object ([its fields](../formats.md)). Settings:
[configuration](../configuration.md).
"""


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that people may call, a group before its own, in the order of `rankpulse --help`."""
    found: Mapping[str, Any] = group.commands
    for name, command in found.items():
        if command.hidden:
            continue
        yield (*path, name), command
        if getattr(command, "commands", None):
            yield from commands(command, (*path, name))


def help_of(path: tuple[str, ...]) -> str:
    """What `rankpulse PATH --help` says, on a terminal of WIDTH columns."""
    said = CliRunner().invoke(app, [*path, "--help"], prog_name="rankpulse", terminal_width=WIDTH)
    if said.exit_code != 0:
        raise RuntimeError(f"rankpulse {' '.join(path)} --help: exit code {said.exit_code}: {said.output}")
    # \b in a help text keeps its lines as they are, and stays in the output where no terminal is
    return "\n".join(line.rstrip() for line in said.stdout.replace("\b", "").strip().splitlines())


def page() -> str:
    """The whole page, as Markdown."""
    paths = [(), *(path for path, _ in commands(typer.main.get_command(app)))]
    index = [f"[`{' '.join(path)}`](#{'-'.join(('rankpulse', *path))})" for path in paths if path]
    parts = [HEAD, ",\n".join(index) + "\n"]
    for path in paths:
        parts.append(f"## {' '.join(('rankpulse', *path))}\n\n```text\n{help_of(path)}\n```\n")
    return "\n".join(parts)


def main() -> None:
    """Write the page to the file named, or to stdout."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
