"""The figures of a report: the receiver operating characteristic on logarithmic axes, and those of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedsecure_attacks.report.figure import Figure, Report, short
from fedsecure_attacks.report.svg import Axis, Panel, Series, draw
from fedsecure_attacks.report.sweep import sweep_figures

__all__ = ["at_rate", "figures", "roc_figure"]

Curve = Mapping[str, Sequence[float]]


def figures(report: Report) -> tuple[Figure, ...]:
    """All that this report has data for."""
    first = roc_figure(report)
    return (*(() if first is None else (first,)), *sweep_figures(report))


def roc_figure(report: Report) -> Figure | None:
    """All attacks with their bands, chance, and what theory says; ``None`` without curves."""
    curves, theory = report.get("roc", {}), report.get("theory", {})
    drawn = {name: curve for name, curve in curves.items() if curve["fpr"]}
    if not drawn:
        return None
    low = min(f for curve in drawn.values() for f in curve["fpr"] if f > 0)
    seen = [t for curve in drawn.values() for t in curve["tpr"] if t > 0]
    axis_x = Axis("false-positive rate: others wrongly picked", low, 1.0, log=True)
    axis_y = Axis("true-positive rate: members picked out", min([low, *seen]), 1.0, log=True)
    chance = [(f, f) for f in _grid(low)]
    series = [Series("chance", chance, colour=9, dash=2, width=1.2)]
    series += [
        Series(short(name), list(zip(c["fpr"], c["tpr"], strict=True)), colour=9, dash=1 + i, width=1.2)
        for i, (name, c) in enumerate(sorted(theory.items()))
        if c["fpr"]
    ]
    primary = report["primary"]
    ordered = sorted(drawn, key=lambda name: (name == primary, name))
    series += [_curve(name, drawn[name], i, name == primary) for i, name in enumerate(ordered)]
    caption = (
        "Both axes are logarithmic: the left edge, where few others are wrongly picked, is where a leak of a few "
        "people shows. A line above the dotted one (chance) means that members are picked out. "
        f"Thick: {short(primary)}, the attack that was chosen beforehand; its band holds with 95 % confidence at "
        "each point. A rate of zero is drawn at the lower edge."
    )
    title = "Members picked out, against others wrongly picked"
    columns, rows = _roc_table(drawn, theory)
    panel = Panel("", axis_x, axis_y, series)
    svg = draw("roc", title, f"{title}. {_best(drawn)} The table below holds the values.", [panel], size=(680, 440))
    return Figure("roc", title, caption, svg, columns, rows)


def _curve(name: str, curve: Curve, index: int, thick: bool) -> Series:
    points = list(zip(curve["fpr"], curve["tpr"], strict=True))
    banded = thick and "low" in curve and "high" in curve
    band = list(zip(curve["fpr"], curve["low"], curve["high"], strict=True)) if banded else []
    wide = 2.8 if thick else 1.3
    return Series(
        short(name),
        points,
        0 if thick else 1 + index % 8,
        0 if thick else index % 5,
        -1 if thick else index % 10,
        wide,
        band,
    )


def _grid(low: float) -> list[float]:
    return [low ** (1 - k / 20) for k in range(21)]


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
