"""What the demo shows: a live table on a terminal, plain lines elsewhere."""

import asyncio
import sys
import time
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rankpulse.core import records as r
from rankpulse.drills.drawing import draw
from rankpulse.drills.ending import Ending
from rankpulse.drills.resumes import BOUND
from rankpulse.drills.scenes import Result
from rankpulse.drills.witness import Witness

LINES = 8
WIDTH = 180  # of a log file or a pipe
CURVE_WIDTH = 100
TABLE_WIDTH = 150  # columns that the table at the end needs


class Screen:
    """Told what happens; shows it. With `quiet`, everything goes to stderr, so that stdout stays pure JSON."""

    def __init__(self, names: list[str], *, quiet: bool) -> None:
        self.console = Console(stderr=quiet, highlight=False)
        if not self.console.is_terminal:
            self.console = Console(stderr=quiet, highlight=False, width=WIDTH)
        self._began = time.monotonic()
        self._lines: deque[str] = deque(maxlen=LINES)
        self._playing = ""
        self._names = names
        self._witness: Witness | None = None
        self._done: list[Result] = []
        self._live = Live(console=self.console, refresh_per_second=4, transient=True) if self._fancy() else None

    def _fancy(self) -> bool:
        return self.console.is_terminal and sys.stdout.isatty()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def tell(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:6.1f} s  {text}"
        self._lines.append(line)
        if self._live is None:
            self.console.print(Text(line))
        else:
            self._live.console.print(Text(line, style="dim"))
            self._draw()

    def reference(self, seconds: float) -> None:
        self.tell(f"the bare job needs {seconds:.1f} s from launch to first step")

    def begin(self, name: str) -> None:
        self._playing = name
        self._draw()

    def end(self, result: Result) -> None:
        self._done.append(result)
        self._playing = ""
        verdict = "right" if result.correct else f"WRONG: {'; '.join(result.wrong)}"
        self.tell(f"{result.name}: {result.diagnosis}, action {result.action}, restarts {result.restarts}: {verdict}")

    async def watch(self, witness: Witness) -> None:
        """Draw the table a few times a second and tell every change of an incident, until cancelled."""
        self._witness, told, pages = witness, set[tuple[str, float, str]](), set[str]()
        while True:
            for leader in witness.all(r.Leader):
                if leader.url and leader.url not in pages:
                    pages.add(leader.url)
                    self.tell(f"the page for people, while this lasts: {leader.url}/")
            for incident in witness.incidents():
                for line in incident.trail:
                    mark = (incident.id, line.after_s, line.text)
                    if mark not in told:
                        told.add(mark)
                        self.tell(f"  rankpulse {incident.id}  {line.text}")
            self._draw()
            await asyncio.sleep(0.25)

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(Group(*self._panels()))

    def _panels(self) -> list[Panel | Table]:
        title = f"rankpulse demo   now: {self._playing or 'getting ready'}   done: {len(self._done)}"
        return [Panel(self._ranks(), title=title, title_align="left"), self._incidents()]

    def _ranks(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for column in ("node", "rank", "pid", "phase", "step", "state", "run"):
            table.add_column(column, justify="right" if column in ("rank", "pid", "step") else "left")
        for beat in sorted(self._witness.all(r.Beat), key=lambda b: b.node) if self._witness else []:
            for row in sorted(beat.ranks, key=lambda row: row.rank):
                run = beat.runs[row.run].run_id if 0 <= row.run < len(beat.runs) else "?"
                phase = beat.phases[row.phase] if 0 <= row.phase < len(beat.phases) else "?"
                table.add_row(beat.node, str(row.rank), str(row.pid), phase, str(row.step), row.state, run)
        return table

    def _incidents(self) -> Table:
        table = Table(title="incidents", title_justify="left", box=None, pad_edge=False)
        for column in ("id", "class", "state", "what", "action", "rounds begun"):
            table.add_column(column)
        for i in self._witness.incidents() if self._witness else []:
            table.add_row(i.id, i.klass, i.outcome or i.state, i.summary, i.action, str(i.restarts))
        return table

    def results(self, results: list[Result], reference: float, end: Ending | None = None) -> None:
        """The table at the end (a list where the screen is too narrow for it), and the curve of the loss."""
        self._stop()
        if self.console.width < TABLE_WIDTH:
            for x in results:
                self.console.print(self._as_list(x))
        else:
            self.console.print(self._as_table(results))
        self.console.print(f"For reference: the bare job needs {reference:.1f} s from launch to its first step here.")
        for x in results:
            for wrong in x.wrong:
                self.console.print(Text(f"{x.name}: {wrong}", "red"))
        if any(x.lost_steps is not None for x in results):
            self.console.print(
                f"Lost: last step that any rank finished before the fault, minus that resumed from. {BOUND}"
            )
        if end is not None:
            self._curve(end)

    def _curve(self, end: Ending) -> None:
        drawn = draw(end.seen, end.marks, width=min(self.console.width, CURVE_WIDTH))
        self.console.print(Text(drawn))
        self.console.print(Text(end.sentence(), "bold"), soft_wrap=True)
        for wrong in end.wrong:
            self.console.print(Text(f"curve: {wrong}", "red"))

    def _as_table(self, results: list[Result]) -> Table:
        table = Table(title="what was done, and what rankpulse made of it", title_justify="left")
        for column in ("fault", "done", "diagnosis", "culprit", "cascade", "action", "restarts", "incidents",
                       "resumed from", "lost steps (interval)", "noticed", "recovered", ""):  # fmt: skip
            table.add_column(column, overflow="fold")
        for x in results:
            table.add_row(
                x.name, x.done, x.diagnosis, _ranks(x.culprits), _ranks(x.cascade), x.action, str(x.restarts),
                str(x.incidents), _resumed(x), _lost(x), _seconds(x.time_to_detect_s),
                _seconds(x.time_to_recover_s), _verdict(x),
            )  # fmt: skip
        return table

    def _as_list(self, x: Result) -> Text:
        lines = [
            f"done       {x.done}",
            f"diagnosis  {x.diagnosis}, culprit {_ranks(x.culprits)}, cascade {_ranks(x.cascade)}",
            f"action     {x.action}; restarts {x.restarts}, incidents {x.incidents}",
            f"times      noticed {_seconds(x.time_to_detect_s)}, recovered {_seconds(x.time_to_recover_s)}",
        ]
        if x.resumed_from_step is not None:
            checked = ", whose checkpoint was verified" if x.verified else ""
            checked += "; those that lived had saved it" if x.last_words else ""
            lines.append(f"resumed    from step {x.resumed_from_step}{checked}")
        if x.lost_steps is not None:
            lines.append(f"lost       {x.lost_steps} steps of an interval of {x.save_every}")
        head = Text.assemble((f"{x.name}: ", "bold"), _verdict(x))
        return Text("\n  ").join([head, *map(Text, lines)])


def _verdict(result: Result) -> Text:
    return Text("right", "green") if result.correct else Text("WRONG", "bold red")


def _ranks(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks)) or "-"


def _resumed(x: Result) -> str:
    step = "-" if x.resumed_from_step is None else str(x.resumed_from_step)
    return f"{step} (last words)" if x.last_words else step


def _lost(x: Result) -> str:
    return "-" if x.lost_steps is None else f"{x.lost_steps} ({x.save_every})"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
