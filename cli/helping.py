"""Help that is longer than a command's own lines: written only when somebody asks for it."""

from typing import Any, Final

from typer.core import TyperCommand

_COLUMNS: Final = (
    ("done", "how often it was injected"),
    ("told of", "how often an incident told of it"),
    ("overtaken", "over, by itself or with its round, before it had to be told of"),
    ("clear", "told of while nothing else stood in the way; p50, p99 and max are of these"),
    ("worst s", "the longest of all, whatever else went on"),
)


class SimCommand(TyperCommand):
    """`rankpulse sim --help` names the faults and the columns of its table."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from rankpulse.drills.sim.plan import FAULTS

        with formatter.section("Faults, for --faults"):
            formatter.write_dl([(kind, what) for kind, (_, what) in FAULTS.items()])
        with formatter.section("Columns of the table"):
            formatter.write_dl(_COLUMNS)
