"""How the command fails: one or two sentences on stderr and an exit code, never a traceback.

Exit codes: 2 wrong use, configuration or store; 70 a bug; 130 Ctrl-C. Commands give 1 where they found something bad.
"""

import errno
import os
import sys
import traceback
from contextlib import suppress
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperGroup

WRONG, BUG, INTERRUPTED = 2, 70, 130
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Failed(Exception):
    """A command cannot do what was asked; the text says why and what to do."""


def fail(text: str, code: int) -> NoReturn:
    """Say it on stderr and leave."""
    typer.echo(f"rankpulse: {text}", err=True)
    raise typer.Exit(code)


class Group(TyperGroup):
    """The one place where errors of all commands are caught."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if _is_clicks(error) or stdout_failed(error):
                raise
            if os.environ.get("RANKPULSE_DEBUG"):
                traceback.print_exc(file=sys.stderr)
            if _is_ours(error):
                fail(_said(error), WRONG)
            first = (str(error).splitlines() or [""])[0][:200]
            fail(
                f"this is a bug in rankpulse: {type(error).__name__}: {first}\n"
                "run with RANKPULSE_DEBUG=1 for the traceback",
                BUG,
            )


def stdout_failed(error: Exception) -> bool:
    """Whether our output had no place: an error of a full device that names no file."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _FULL


def fail_without_stdout(error: OSError) -> NoReturn:
    """Leave with 1. What waits goes nowhere, or the interpreter would complain about it once more."""
    print(
        f"rankpulse: the output cannot be written: {error.strerror}; free space there, or send it elsewhere",
        file=sys.stderr,
    )
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)


def _is_clicks(error: Exception) -> bool:
    """Usage errors and `Exit` are shown by typer itself; a closed pipe ends quietly there, too."""
    return isinstance(error, (typer.Exit, typer.Abort, BrokenPipeError)) or hasattr(error, "exit_code")


def _is_ours(error: Exception) -> bool:
    from rankpulse.core.keys import BadName
    from rankpulse.core.settings import BadSettings
    from rankpulse.store.api import StoreError

    return isinstance(error, (Failed, StoreError, BadSettings, BadName))


def _said(error: Exception) -> str:
    problems = getattr(error, "problems", None)
    if not problems or len(problems) == 1:
        return str(error)
    return f"{len(problems)} problems in the configuration:\n" + "\n".join(f"  {problem}" for problem in problems)
