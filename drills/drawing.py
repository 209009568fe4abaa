"""The loss over the restarts as text, for a terminal and for a file."""

from collections.abc import Sequence

from rankpulse.drills.curve import Curve, means

TICKS = 6
ROWS = 18


def draw(curve: Curve, marks: Sequence[tuple[int, str]] = (), width: int = 80) -> str:
    """The curve in braille, without colours, `width` columns wide; empty when no step was finished by all ranks.

    `marks`: (step, why) for every restart: the step that the job went on from gets a vertical line and the word.
    """
    import plotext

    points = means(curve)
    if not points:
        return ""
    plotext.terminal.limit(False, False)  # the width is the caller's, not that of a terminal that may not be there
    figure = plotext.figure.clear()
    figure.plot_size(width, ROWS)
    figure.theme("colorless")
    for round_ in curve.rounds:
        mine = [(point.step, point.loss) for point in points if point.round == round_]
        if mine:
            figure.draw(figure.signal(*zip(*mine, strict=True), marker="braille").lines())
    first, last = points[0].step, max(point.step for point in points)
    high, low = max(point.loss for point in points), min(point.loss for point in points)
    for number, (step, why) in enumerate(marks):
        figure.line(step, "v", style="dotted")
        height = high - (number % 3) * 1.01 * (high - low) / (ROWS - 5)  # three words side by side can be read
        side = "right" if step > first + 0.8 * (last - first) else "left"
        figure.draw(figure.text(step, height, why, alignment=side))
    figure.ruler("x").ticks(sorted({first + number * (last - first) // TICKS for number in range(TICKS + 1)}))
    figure.label("step")
    figure.title("loss, mean over the ranks")
    lines = plotext.uncolorize(str(figure.build())).splitlines()
    return "\n".join(line.rstrip() for line in lines)
