"""The figures of a report: the receiver operating characteristic on logarithmic axes, and those of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedsecure_attacks.report.drawing import COLOURS, GREY, MARKERS, Line, legend_below, plot, svg_of, within
from fedsecure_attacks.report.figure import WIDTH, Figure, Report, labelled, short
from fedsecure_attacks.report.sweep import sweep_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

__all__ = ["at_rate", "figures", "roc_figure"]

Curve = Mapping[str, Sequence[float]]
TITLE = "Members picked out, against others wrongly picked"
#: The most attacks that are drawn, and the smallest rate; a table holds the others.
MOST_CURVES, LEAST = 16, 1e-7


def figures(report: Report) -> tuple[Figure, ...]:
    """All that this report has data for."""
    first = roc_figure(report)
    return (*(() if first is None else (first,)), *sweep_figures(report))


def roc_figure(report: Report) -> Figure | None:
    """All attacks, the primary one with its band, chance, and what theory says; ``None`` without curves."""
    curves, theory = report.get("roc", {}), report.get("theory", {})
    drawn = {name: curve for name, curve in curves.items() if curve["fpr"]}
    if not drawn:
        return None
    primary = report["primary"]
    ordered = sorted(drawn, key=lambda name: (name != primary, name))
    more = len(ordered) - MOST_CURVES
    caption = (
        "Both axes are logarithmic: the left edge, where few others are wrongly picked, is where a leak of a few "
        "people shows. A line above the dotted one (chance) means that members are picked out. "
        f"Thick: {short(primary)}, the attack that was chosen beforehand; its band holds with 95 % confidence at "
        "each point. Grey: what theory says. A rate of zero is drawn at the lower edge."
        + (f" {more} more attacks are in the table alone." if more > 0 else "")
    )
    lines = _lines(report, {name: drawn[name] for name in ordered[:MOST_CURVES]}, theory)
    size = (WIDTH, 3.9 + 0.17 * ((len(lines) + 1) // 2))
    svg = svg_of(TITLE, size, lambda figure: _paint(figure, lines))
    columns, rows = _roc_table({name: drawn[name] for name in ordered}, theory)
    alt = f"{TITLE}, on logarithmic axes, for {len(drawn)} attacks. {_best(drawn)} The table below holds the values."
    return Figure("roc", TITLE, caption, alt, svg, size, columns, rows)


def _lines(report: Report, drawn: Mapping[str, Curve], theory: Mapping[str, Curve]) -> list[Line]:
    """Chance, theory, the other attacks, and above them the primary one, with every rate inside the axes."""
    low = min((f for curve in drawn.values() for f in curve["fpr"] if f > 0), default=0.001)
    x0 = within(low, LEAST, 0.5)
    y0 = within(min((t for curve in drawn.values() for t in curve["tpr"] if t > 0), default=x0), LEAST, x0)

    def inside(curve: Curve, of: str) -> list[tuple[float, float]]:
        return [(within(f, x0, 1), within(t, y0, 1)) for f, t in zip(curve["fpr"], curve[of], strict=True)]

    lines = [Line("chance", [(x0, x0), (1.0, 1.0)], dash=2, width=1.0)]
    lines += [
        Line(short(name), inside(curve, "tpr"), dash=1 + i % 4, width=1.2)
        for i, (name, curve) in enumerate(sorted(theory.items()))
        if curve["fpr"]
    ]
    others = [name for name in drawn if name != report["primary"]]
    lines += [
        Line(labelled(report, name), inside(drawn[name], "tpr"), COLOURS[1 + i % (len(COLOURS) - 1)], i % 5,
             MARKERS[1 + i % (len(MARKERS) - 1)], hollow=i % 2 == 1, shift=i)
        for i, name in enumerate(others)
    ]  # fmt: skip
    if (curve := drawn.get(report["primary"])) is not None:
        band = []
        if "low" in curve and "high" in curve:
            ends = zip(inside(curve, "low"), inside(curve, "high"), strict=True)
            band = [(x, below, above) for (x, below), (_, above) in ends]
        points = inside(curve, "tpr")
        lines.append(Line(labelled(report, report["primary"]), points, COLOURS[0], 0, "o", width=2.6, band=band))
    return lines


def _paint(figure: Canvas, lines: Sequence[Line]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes = figure.add_subplot()
    x0 = lines[0].points[0][0]
    y0 = min(y for line in lines for _, y in line.points)
    axes.set(xscale="log", yscale="log", xlim=(x0 / 1.1, 1.1), ylim=(y0 / 1.1, 1.1))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator())
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    entries = {line.name: plot(axes, line) for line in lines}
    axes.set_xlabel("false-positive rate: others wrongly picked")
    axes.set_ylabel("true-positive rate: members picked out")
    middle = x0**0.5
    axes.text(middle, middle / 1.1, "chance", color=GREY, rotation=45, transform_rotates_text=True,
              rotation_mode="anchor", va="top")  # fmt: skip
    legend_below(figure, entries)


def at_rate(curve: Curve, fpr: float) -> float | None:
    """The true-positive rate of a curve at the largest rate that is no more than ``fpr``."""
    known = [(f, t) for f, t in zip(curve["fpr"], curve["tpr"], strict=True) if f <= fpr * (1 + 1e-9)]
    return max(known)[1] if known else None


def _best(drawn: Mapping[str, Curve]) -> str:
    known = {name: rate for name, curve in drawn.items() if (rate := at_rate(curve, 0.01)) is not None}
    if not known:
        return "No curve reaches down to a false-positive rate of 0.01."
    best = max(known, key=lambda name: known[name])
    return f"At a false-positive rate of 0.01, {short(best)} picks out most: a share of {known[best]:.3f}."


def _roc_table(
    *kinds: Mapping[str, Curve],
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """A row for each curve, a column for each decade."""
    curves = {name: curve for kind in kinds for name, curve in kind.items()}
    wanted = [f for f in (0.001, 0.01, 0.05, 0.1, 0.5) if any(at_rate(c, f) is not None for c in curves.values())]
    rows = []
    for name, curve in curves.items():
        values = [at_rate(curve, f) for f in wanted]
        rows.append((short(name), *("–" if v is None else f"{v:.3f}" for v in values)))
    return ("attack", *(f"at {f:g}" for f in wanted)), tuple(rows)
