"""The figures of a sweep: rate, area, residual and accuracy against the number of images per class, beside what as many
records released as they are would tell, and differential privacy at equal accuracy (audit page, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsecure_attacks.report.figure import Figure, Report, rate_key, short
from fedsecure_attacks.report.svg import Axis, Panel, Series, draw

__all__ = ["sweep_figures"]

DEPLOYED = "as deployed"
#: The most panels of one figure.
MOST_PANELS = 6
Cell = Mapping[str, Any]
#: A value with the ends of its interval.
Banded = tuple[float | None, float | None, float | None]


@dataclass(frozen=True)
class _View:
    """One figure of a sweep: ``value`` of a cell with its band, the line of chance, and what to read."""

    name: str
    title: str
    label: str
    value: Callable[[Cell, str], Banded]
    caption: str
    log: bool = False
    chance: float | None = None


def _tpr(cell: Cell, primary: str) -> Banded:
    attack = cell["attacks"].get(primary, {})
    key = rate_key(attack)
    return (attack.get(key) if key else None, attack.get("low_tpr"), attack.get("high_tpr"))


def _auc(cell: Cell, primary: str) -> Banded:
    attack = cell["attacks"].get(primary, {})
    return attack.get("auc"), attack.get("low"), attack.get("high")


_VIEWS = (
    _View("ipc-tpr", "Members picked out, against images per class", "true-positive rate at 0.01", _tpr,
          "The share of members picked out while one other in a hundred is wrongly picked. Full lines: as the release "
          "would be made. Dashed: condensed until all match equally well, which compares the number of images alone.",
          log=True, chance=0.01),
    _View("ipc-auc", "Area under the curve, against images per class", "area under the curve", _auc,
          "The chance that a member scores above another person; 0.5 is chance. Bands hold with 95 % confidence over "
          "condensations and classes.", chance=0.5),
    _View("ipc-residual", "How closely the images match, against images per class", "matching residual",
          lambda cell, _: (cell.get("residual"), None, None),
          "The squared distance between the class means of images and records. The closer the match, the more an image "
          "set tells of its records.", log=True),
    _View("ipc-accuracy", "What the images are good for, against images per class", "accuracy",
          lambda cell, _: (cell.get("accuracy"), None, None),
          "Accuracy, on held-out records, of a model trained on the images alone: what the disclosure buys."),
)  # fmt: skip


def sweep_figures(report: Report) -> tuple[Figure, ...]:
    """Rate, area, residual and accuracy against images per class; a panel for each initialisation (and number of
    rounds), a line for each curve and noise. Empty without a sweep."""
    cells: Sequence[Cell] = report.get("sweep", [])
    primary = report["primary"]
    if cells and not any(primary in cell["attacks"] for cell in cells):
        primary = next((name for cell in cells for name in sorted(cell["attacks"])), primary)
    found = [_figure(view, cells, primary, report.get("baselines", {})) for view in _VIEWS]
    return tuple(figure for figure in found if figure is not None)


def _figure(view: _View, cells: Sequence[Cell], primary: str, baselines: Mapping[str, Any]) -> Figure | None:
    known = [cell for cell in cells if view.value(cell, primary)[0] is not None]
    if not known:
        return None
    panels: dict[str, list[Cell]] = {}
    for cell in known:
        panels.setdefault(_panel_of(cell, known), []).append(cell)
    extra = _baselines(view, baselines)
    axis_x = _ipc_axis([cell["ipc"] for cell in known])
    axis_y = _value_axis(view, known, primary, extra)
    drawn = [
        Panel(title, axis_x, axis_y, [*_lines(view, some, primary, axis_x), *extra]) for title, some in panels.items()
    ][:MOST_PANELS]
    rows = tuple(_row(view, cell, primary) for cell in known)
    about = f"{view.title}, attack {short(primary)}. Panels: {', '.join(panels)}. {view.caption}"
    svg = draw(view.name, view.title, about, drawn, size=(max(300, 700 // len(drawn)), 300))
    columns = ("curve", "initialisation", "images per class", "noise σ", "rounds", view.label, "95 %")
    return Figure(view.name, view.title, f"{view.caption} Attack: {short(primary)}.", svg, columns, rows)


def _panel_of(cell: Cell, cells: Sequence[Cell]) -> str:
    rounds = {c.get("rounds") for c in cells}
    after = f", {cell['rounds']} rounds" if len(rounds) > 1 and cell.get("rounds") else ""
    words = {"noise": "start: noise", "avg": "start: averages", "real": "start: records"}
    return words.get(cell["init"], f"start: {short(cell['init'])}") + after


def _lines(view: _View, cells: Sequence[Cell], primary: str, axis: Axis) -> list[Series]:
    lines: dict[tuple[float, str], list[Cell]] = {}
    for cell in cells:
        lines.setdefault((cell.get("sigma") or 0.0, cell["curve"]), []).append(cell)
    found = []
    if view.chance is not None:
        found.append(Series("chance", [(axis.low, view.chance), (axis.high, view.chance)], 9, 2, width=1.2))
    sigmas = sorted({sigma for sigma, _ in lines})
    for (sigma, curve), some in sorted(lines.items()):
        ordered = sorted(some, key=lambda cell: cell["ipc"])
        values = [(float(cell["ipc"]), *view.value(cell, primary)) for cell in ordered]
        banded = curve == DEPLOYED or len(lines) == 1  # bands over bands show nothing
        band = [(x, low, high) for x, _, low, high in values if banded and low is not None and high is not None]
        colour = 0 if not sigma else 1 + sigmas.index(sigma)
        name = short(curve) + (f", noise σ = {sigma:g}" if sigma else "")
        points = [(x, v) for x, v, _, _ in values if v is not None]
        found.append(Series(name, points, colour, int(curve != DEPLOYED), colour + 5 * (curve != DEPLOYED), 2.0, band))
    return found


def _baselines(view: _View, baselines: Mapping[str, Any]) -> list[Series]:
    if view.name != "ipc-tpr":
        return []
    raw = [(float(b["ipc"]), b["tpr"]) for b in baselines.get("raw images") or () if b["tpr"] is not None]
    private = [
        (float(b["ipc"]), b["tpr"]) for b in baselines.get("dp at equal accuracy") or () if b.get("tpr") is not None
    ]
    found = [Series("that many records released as they are", sorted(raw), 7, 4, width=1.4)] if raw else []
    return found + ([Series("DP at equal accuracy", sorted(private), 2, 3, 3, 1.4)] if private else [])


def _ipc_axis(values: Sequence[int]) -> Axis:
    known = sorted({max(1, value) for value in values})
    low, high = (known[0], known[-1]) if len(known) > 1 else (known[0] / 2, known[0] * 2)
    spread = [known[0]]
    for value in known[1:]:  # no label over another
        if value / spread[-1] > (high / low) ** 0.12:
            spread.append(value)
    return Axis("images per class", low / 1.1, high * 1.1, log=True, ticks=tuple(map(float, spread)))


def _value_axis(view: _View, cells: Sequence[Cell], primary: str, extra: Sequence[Series]) -> Axis:
    values = [v for cell in cells for v in view.value(cell, primary) if v is not None]
    values += [y for series in extra for _, y in series.points] + ([] if view.chance is None else [view.chance])
    if view.log:
        positive = [v for v in values if v > 0] or [1e-3, 1.0]
        low, high = min(positive), max(positive)
        return Axis(view.label, *((low / 1.25, high * 1.25) if high / low < 8 else (low / 1.1, high * 1.1)), log=True,
                    ticks=_log_ticks(low / 1.25, high * 1.25))  # fmt: skip
    low, high = min(values), max(values)
    room = max(0.02, 0.06 * (high - low))
    return Axis(view.label, low - room, high + room)


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """1, 2 and 5 of each decade, or decades alone where there are many."""
    steps = (1, 2, 5) if high / low < 300 else (1,)
    every = [m * 10.0**k for k in range(-12, 13) for m in steps]
    inside = tuple(round(v, 14) for v in every if low <= v <= high)
    return inside or (low, high)


def _row(view: _View, cell: Cell, primary: str) -> tuple[str, ...]:
    value, low, high = view.value(cell, primary)
    between = "–" if low is None or high is None else f"{low:.3f} to {high:.3f}"
    return (
        cell["curve"], cell["init"], str(cell["ipc"]), f"{cell.get('sigma') or 0:g}", str(cell.get("rounds") or "–"),
        "–" if value is None else f"{value:.3g}", between,
    )  # fmt: skip
