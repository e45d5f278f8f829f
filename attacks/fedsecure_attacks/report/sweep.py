"""The figures of a sweep: rate, area, residual and accuracy against the number of images per class, beside what as many
records released as they are would tell, and differential privacy at equal accuracy (audit page, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedsecure.text import counted
from fedsecure_attacks.report.drawing import (
    COLOURS,
    DASHES,
    GREY,
    MARKERS,
    Line,
    drawable,
    legend_below,
    plot,
    svg_of,
    within,
)
from fedsecure_attacks.report.figure import WIDTH, Figure, Report, rate_key, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["VIEWS", "sweep_figures"]

DEPLOYED = "as deployed"
#: The most panels of one figure, those beside each other, and the most lines of one; a table holds all.
MOST_PANELS, COLUMNS, MOST_LINES = 6, 3, 12
#: Values that are drawn: no smaller on a logarithmic axis, no larger on any.
LEAST, MOST = 1e-9, 1e9
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

#: Names of all figures of a sweep.
VIEWS = tuple(view.name for view in _VIEWS)


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
    by_panel: dict[str, list[Cell]] = {}
    for cell in known:
        by_panel.setdefault(_panel_of(cell, known), []).append(cell)
    extra = _baselines(view, baselines)
    panels = [(title, [*_lines(view, some, primary), *extra]) for title, some in list(by_panel.items())[:MOST_PANELS]]
    names = {line.name for _, lines in panels for line in lines}
    rows = -(-len(panels) // COLUMNS)
    size = (WIDTH, 0.3 + 2.3 * rows + 0.17 * ((len(names) + 2) // 2))
    svg = svg_of(view.title, size, lambda figure: _paint(figure, view, panels, sorted({c["ipc"] for c in known})))
    columns = ("curve", "initialisation", "images per class", "noise σ", "rounds", view.label, "95 %")
    caption = f"{view.caption} Attack: {short(primary)}."
    if len(by_panel) > MOST_PANELS:
        caption += f" {len(by_panel) - MOST_PANELS} more panels are in the table alone."
    table = tuple(_row(view, cell, primary) for cell in known)
    return Figure(view.name, view.title, caption, _alt(view, known, primary), svg, size, columns, table)


def _alt(view: _View, cells: Sequence[Cell], primary: str) -> str:
    """Between which values, and under which settings."""

    def words(cell: Cell) -> str:
        noise = f", noise σ = {cell['sigma']:g}" if cell.get("sigma") else ""
        return (
            f"{view.value(cell, primary)[0]:.3g} ({_panel_of(cell, cells)}{noise}, images per class: {cell['ipc']}, "
            f"{short(cell['curve'])})"
        )

    ordered = sorted(cells, key=lambda cell: float(view.value(cell, primary)[0] or 0.0))
    return (
        f"{view.title}, for {len(cells)} settings: {view.label} from {words(ordered[0])} to {words(ordered[-1])}. "
        "The table below holds the values."
    )


def _paint(figure: Canvas, view: _View, panels: Sequence[tuple[str, list[Line]]], ipcs: Sequence[int]) -> None:
    columns = min(COLUMNS, len(panels))
    grid = figure.subplots(-(-len(panels) // columns), columns, sharex=True, sharey=True, squeeze=False)
    entries: dict[str, Any] = {}
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for index, (axes, (title, lines)) in enumerate(zip(grid.flat, panels, strict=False)):
        _axes(axes, view, ipcs)
        axes.set_ylim(_limits(view, panels))
        axes.set_title(drawable(title))
        if view.chance is not None:
            name = "chance"
            entries[name] = axes.axhline(view.chance, color=GREY, linewidth=1.0, linestyle=DASHES[2])
            axes.annotate(name, (0.99, view.chance), xycoords=("axes fraction", "data"), xytext=(0, 1.5),
                          textcoords="offset points", ha="right", va="bottom", color=GREY)  # fmt: skip
        entries |= {line.name: plot(axes, line) for line in lines}
        if index % columns == 0:
            axes.set_ylabel(view.label)
        if index + columns >= len(panels):
            axes.set_xlabel("images per class")
            axes.tick_params(labelbottom=True)
    legend_below(figure, entries)


def _limits(view: _View, panels: Sequence[tuple[str, list[Line]]]) -> tuple[float, float]:
    """What all values fit in, with room around; bands may leave it."""
    values = [y for _, lines in panels for line in lines for _, y in line.points]
    values += [] if view.chance is None else [view.chance]
    low, high = min(values), max(values)
    if view.log:
        return low / 1.25, high * 1.25
    room = max(0.02, 0.06 * (high - low))
    return low - room, high + room


def _axes(axes: Axes, view: _View, ipcs: Sequence[int]) -> None:
    """Scales and ticks: as many of the numbers of images as there is room for."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    known = [float(max(1, ipc)) for ipc in ipcs]
    low, high = (known[0], known[-1]) if len(known) > 1 else (known[0] / 2, known[0] * 2)
    spread = [known[0]]
    for value in known[1:]:  # no label over another
        if value / spread[-1] > (high / low) ** 0.12:
            spread.append(value)
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.set(xscale="log", xlim=(low / 1.15, high * 1.15))
    axes.xaxis.set_major_locator(FixedLocator(spread))
    if view.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(plain)


def _panel_of(cell: Cell, cells: Sequence[Cell]) -> str:
    rounds = {c.get("rounds") for c in cells}
    after = f", {counted(cell['rounds'], 'round')}" if len(rounds) > 1 and cell.get("rounds") else ""
    words = {"noise": "start: noise", "avg": "start: averages", "real": "start: records"}
    return words.get(cell["init"], f"start: {short(cell['init'])}") + after


def _lines(view: _View, cells: Sequence[Cell], primary: str) -> list[Line]:
    by_line: dict[tuple[float, str], list[Cell]] = {}
    for cell in cells:
        by_line.setdefault((cell.get("sigma") or 0.0, cell["curve"]), []).append(cell)
    sigmas = sorted({sigma for sigma, _ in by_line})
    found = []
    for (sigma, curve), some in sorted(by_line.items())[:MOST_LINES]:
        ordered = sorted(some, key=lambda cell: cell["ipc"])
        values = [(float(max(1, cell["ipc"])), *view.value(cell, primary)) for cell in ordered]
        banded = curve == DEPLOYED or len(by_line) == 1  # bands over bands show nothing
        band = [
            (x, _drawn(view, low), _drawn(view, high))
            for x, _, low, high in values
            if banded and low is not None and high is not None
        ]
        look = sigmas.index(sigma)
        found.append(
            Line(
                short(curve) + (f", noise σ = {sigma:g}" if sigma else ""),
                [(x, _drawn(view, v)) for x, v, _, _ in values if v is not None],
                COLOURS[look % 6], int(curve != DEPLOYED), MARKERS[look % 6], curve != DEPLOYED, 1.8, band=band,
            )
        )  # fmt: skip
    return found


def _drawn(view: _View, value: float) -> float:
    """``value`` where axes can hold it."""
    return within(value, LEAST if view.log else -MOST, MOST)


def _baselines(view: _View, baselines: Mapping[str, Any]) -> list[Line]:
    if view.name != "ipc-tpr":
        return []

    def points(name: str) -> list[tuple[float, float]]:
        given = baselines.get(name) or ()
        return sorted((float(max(1, b["ipc"])), _drawn(view, b["tpr"])) for b in given if b.get("tpr") is not None)

    known = (
        Line("that many records released as they are", points("raw images"), COLOURS[6], 4, MARKERS[6]),
        Line("DP at equal accuracy", points("dp at equal accuracy"), COLOURS[7], 3, MARKERS[7]),
    )
    return [line for line in known if line.points]


def _row(view: _View, cell: Cell, primary: str) -> tuple[str, ...]:
    value, low, high = view.value(cell, primary)
    between = "–" if low is None or high is None else f"{low:.3f} to {high:.3f}"
    return (
        cell["curve"], cell["init"], str(cell["ipc"]), f"{cell.get('sigma') or 0:g}", str(cell.get("rounds") or "–"),
        "–" if value is None else f"{value:.3g}", between,
    )  # fmt: skip
