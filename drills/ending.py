"""The demo's last word: the loss over all the restarts of its job, judged, drawn and written down."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankpulse.drills import curve
from rankpulse.drills.drawing import draw
from rankpulse.drills.scenes import Result

BETWEEN_SAVES = ("crash", "hang")  # scenes whose fault is played where there are steps to lose, see `between_saves`


@dataclass
class Ending:
    """What the curve came to. `marks`: (step, scene) of every restart."""

    seen: curve.Curve
    marks: list[tuple[int, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def compared(self) -> int:
        """Steps that were computed a second time and gave the same, or did not."""
        return sum(curve.compared(self.seen).values())

    def plain(self) -> dict[str, Any]:
        return {
            "steps": max((step for _, step in self.seen.at), default=0),
            "rounds": self.seen.rounds,
            "compared": self.compared,
            "continuous": not self.wrong,
            "wrong": self.wrong,
        }

    def sentence(self) -> str:
        rounds, steps = self.seen.rounds, self.plain()["steps"]
        told = f"Loss over {steps} steps and {len(rounds)} round{'s' if len(rounds) > 1 else ''}: "
        if self.wrong:
            return told + "NOT continuous."
        if len(rounds) < 2:
            return told + "no restart, no step is missing."
        if not self.compared:
            return told + "continuous. No step is missing, and none had to be computed a second time."
        again = "step that was" if self.compared == 1 else "steps that were"
        return told + (
            f"continuous. No step is missing, and the {self.compared} {again} computed a second time after a restart "
            "gave every rank the same loss, to the last bit."
        )


def ending(seen: curve.Curve, results: list[Result]) -> Ending:
    """Judge the curve of the demo's job after `results`, in the order in which they were played."""
    labels = iter([(result.name, result.last_words) for result in results for _ in range(result.restarts)])
    end = Ending(seen, wrong=curve.wrong(seen))
    compared = curve.compared(seen)
    for round_ in seen.rounds[1:]:
        label, spoken = next(labels, ("restart", False))
        end.marks.append((seen.steps(round_)[0] - 1, label))
        if label in BETWEEN_SAVES and not spoken and compared[round_] < curve.ENOUGH:
            end.wrong.append(
                f"after the {label} only {compared[round_]} steps were computed again: too few to tell whether all "
                "of the state came back"
            )
    return end


def keep(end: Ending, directory: Path) -> None:
    """Write loss.csv (step, round, mean over the ranks) and loss.txt (the drawing, and what is wrong)."""
    (directory / "loss.csv").write_text(curve.as_csv(end.seen), encoding="utf-8")
    text = [draw(end.seen, end.marks), end.sentence(), *end.wrong]
    (directory / "loss.txt").write_text("\n".join(text) + "\n", encoding="utf-8")
