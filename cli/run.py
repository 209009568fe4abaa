"""`rankpulse run`: torchrun with our rendezvous and the worker holder filled in."""

import argparse
import os
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple, NoReturn

import typer

from rankpulse.cli.failing import Failed

HELP = """\
usage: rankpulse run [--no-hold] [TORCHRUN OPTION]... SCRIPT [ARG]...

Starts SCRIPT as torchrun would, on each node the same line:

  rankpulse run --nnodes 2 --nproc-per-node 8 train.py --lr 0.1

What it fills in (the whole line is printed, for your own scripts):
  --rdzv-backend rankpulse   the nodes meet through their agents: no endpoint, no node rank, no master address
  --rdzv-id NAME             unless given: the Slurm job, else the script's name; on a single node with a random end.
                             Nodes with the same name train together: give each of two jobs a name of its own
  --no-python ... hold ...   the holder beside each worker: a crash is no failure of torchrun, nothing is burned of
                             --max-restarts. --no-hold leaves it out
Everything else is torchrun's and stays as given; see torchrun --help. Give --max-restarts too: until the monitor is
armed a crash costs one of them, and torchrun's default is 0. An agent must run on each node.
"""
HOLDER = ("-P", "-m", "rankpulse.trainer.hold")  # -P: what lies in the working directory is the script's business
BACKEND = "rankpulse"


class Line(NamedTuple):
    """What is to be run, and what should be said about it."""

    argv: list[str]
    notes: list[str]


def run(args: Sequence[str]) -> NoReturn:
    """Become torchrun. Raises `Failed`."""
    if not args or args[0] in ("-h", "--help"):
        typer.echo(HELP, nl=False)
        raise typer.Exit(0 if args else 2)
    line = build(args, os.environ, secrets.token_hex(3))
    for text in (*line.notes, shlex.join(line.argv)):
        typer.echo(f"rankpulse: {text}", err=True)
    sys.stdout.flush()
    os.execv(line.argv[0], line.argv)  # noqa: S606 (torchrun takes our place; no shell is wanted)


def build(args: Sequence[str], environ: Mapping[str, str], token: str) -> Line:
    """The line of torchrun for these arguments of ours. Raises `Failed`; leaves with 2 where torchrun would."""
    parsed = _parser().parse_args(list(args))
    at = len(args) - len(parsed.training_script_args) - 1
    if args[at] != parsed.training_script:
        raise Failed("the script cannot be told from torchrun's options: write -- before it")
    options = [word for word in args[:at] if word != "--"]
    options, notes = _meeting(options, parsed, environ, token)
    program = [parsed.training_script, *parsed.training_script_args]
    if parsed.run_path and not parsed.no_hold:
        notes.append("--run-path: torch runs the script in a process of its own, so there is no holder")
    elif not parsed.no_hold:
        options, program = _held(options, parsed, program, environ)
    options = _without(options, "--no-hold", "--no_hold")
    options += ["--"] if program[0].startswith("-") else []
    return Line([sys.executable, "-m", "torch.distributed.run", *options, *program], notes)


def _parser() -> argparse.ArgumentParser:
    """torchrun's own, plus our option: what is an option and what is the script, only torchrun knows."""
    try:
        from torch.distributed.run import get_args_parser
    except ImportError as error:
        raise Failed(f"torch cannot be imported ({error}): install it for {sys.executable}") from error
    parser: argparse.ArgumentParser = get_args_parser()
    parser.prog = "rankpulse run"
    parser.add_argument("--no-hold", "--no_hold", action="store_true", help="without the worker holder")
    return parser


def _meeting(options: list[str], parsed: Any, environ: Mapping[str, str], token: str) -> tuple[list[str], list[str]]:
    """The options with backend and label, and what to say about them."""
    if parsed.standalone:
        raise Failed("leave --standalone out: a job on one node needs nothing in its place")
    given = parsed.rdzv_backend
    if given not in ("static", BACKEND):  # static is torchrun's default
        raise Failed(f"--rdzv-backend {given}: this command is for {BACKEND}; use torchrun itself")
    if given != BACKEND:
        options = [*options, "--rdzv-backend", BACKEND]
    if parsed.rdzv_id != "none":
        return options, []
    name = _name(parsed, environ)
    if str(parsed.nnodes) in ("1", "1:1"):
        return [*options, "--rdzv-id", f"{name}-{token}"], []
    note = f"the run is called {name}: give --rdzv-id NAME if another of yours could have this name at the same time"
    return [*options, "--rdzv-id", name], [note]


def _name(parsed: Any, environ: Mapping[str, str]) -> str:
    if environ.get("SLURM_JOB_ID"):
        return f"slurm-{environ['SLURM_JOB_ID']}"
    if parsed.module:
        return str(parsed.training_script)[:80]
    return PurePath(parsed.training_script).stem.lstrip("-")[:80] or "run"


def _held(
    options: list[str], parsed: Any, program: list[str], environ: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The same program behind the holder, started as torchrun would have."""
    if not parsed.no_python:
        python = environ.get("PYTHON_EXEC") or sys.executable
        program = [python, "-u", *(["-m"] if parsed.module else []), *program]
        options = [*_without(options, "-m", "--module"), "--no-python"]
    return options, [sys.executable, *HOLDER, *program]


def _without(options: list[str], *flags: str) -> list[str]:
    """The options less these flags, which argparse also takes shortened."""
    return [
        word
        for word in options
        if not (word in flags or (len(word) > 3 and any(flag.startswith(word) for flag in flags)))
    ]
