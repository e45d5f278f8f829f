"""Plots as SVG: lines with bands on linear or logarithmic axes, drawn here so that the same figures give the same bytes
under any version of anything, and so that a page may hold them under a content-security policy without styles.

Colours keep a contrast of 4.5 to white; lines differ by dash and marker, too, and every plot has a title and a
description for those who do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["COLOURS", "Axis", "Panel", "Series", "draw"]

Point = tuple[float, float]
Place = Callable[[float, float], str]
COLOURS = ("#0b5394", "#a3410a", "#0a6b4e", "#9d174d", "#5b21b6", "#0e6377", "#7a4a06", "#57534e", "#b91c1c", "#374151")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2 1 2 1 2")
#: Pixels around a panel's axes, and of one line of a legend.
LEFT, RIGHT, TOP, BOTTOM, LINE = 58, 14, 26, 46, 19


@dataclass(frozen=True, slots=True)
class Axis:
    """From ``low`` to ``high``, both positive when ``log``. ``ticks``: values that get a label; decades or round steps
    when there are none."""

    label: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()

    def at(self, value: float) -> float:
        """Where ``value`` is, 0 to 1; what is outside is put on the edge."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def labelled(self) -> list[tuple[float, str]]:
        """Ticks with their labels."""
        if self.ticks:
            values: Sequence[float] = self.ticks
        elif self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            values = [10.0**k for k in range(first, last + 1)]
        else:
            values = _round_steps(self.low, self.high)
        return [(value, f"{value:g}") for value in values]


@dataclass(frozen=True)
class Series:
    """``points`` in order; ``band``: (x, low, high). ``colour``, ``dash`` and ``marker``: numbers of a look; a marker
    of -1 is none, as is a line of ``width`` 0."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    dash: int = 0
    marker: int = -1
    width: float = 1.6
    band: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes and what is drawn between them."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]


def draw(
    name: str, title: str, description: str, panels: Sequence[Panel], *, size: tuple[int, int] = (460, 400)
) -> str:
    """One SVG: ``panels`` of ``size`` pixels side by side, and below them one legend for all. ``name`` begins every id
    in it, so that several can stand on one page; ``title`` and ``description`` are its text."""
    width = size[0] * len(panels)
    inner = "".join(_panel(panel, i * size[0], size) for i, panel in enumerate(panels))
    legend, lines = _legend({s.name: s for panel in panels for s in panel.series}, size[1], width)
    height = size[1] + lines * LINE + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" aria-labelledby="{name}-title {name}-desc" font-family="sans-serif" font-size="12">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{inner}{legend}</svg>'
    )


def _round_steps(low: float, high: float) -> list[float]:
    """About five round values between."""
    raw = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= raw - 1e-12)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _panel(panel: Panel, left: float, size: tuple[int, int]) -> str:
    x0, x1, y0, y1 = left + LEFT, left + size[0] - RIGHT, size[1] - BOTTOM, TOP

    def place(x: float, y: float) -> str:
        return f"{_number(x0 + panel.x.at(x) * (x1 - x0))},{_number(y0 + panel.y.at(y) * (y1 - y0))}"

    parts = []
    for value, label in panel.x.labelled():
        at = _number(x0 + panel.x.at(value) * (x1 - x0))
        parts.append(f'<path d="M{at},{y0}V{y1}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{at}" y="{y0 + 17}" text-anchor="middle" fill="#1f2937">{label}</text>')
    for value, label in panel.y.labelled():
        at = _number(y0 + panel.y.at(value) * (y1 - y0))
        parts.append(f'<path d="M{x0},{at}H{x1}" stroke="#e5e7eb"/>')
        below = _number(float(at) + 4)
        parts.append(f'<text x="{x0 - 7}" y="{below}" text-anchor="end" fill="#1f2937">{label}</text>')
    parts.append(f'<path d="M{x0},{y1}V{y0}H{x1}" fill="none" stroke="#6b7280"/>')
    parts.append(_titles(panel, left, (x0 + x1) / 2, (y0 + y1) / 2, size[1]))
    bands = "".join(_band(series, place) for series in panel.series if series.band)
    return "".join(parts) + bands + "".join(_line(series, place) for series in panel.series)


def _titles(panel: Panel, left: float, across: float, down: float, height: int) -> str:
    def text(place: str, words: str, more: str = "") -> str:
        return f'<text {place} text-anchor="middle" fill="#111827"{more}>{escape(words)}</text>'

    turned = f'transform="translate({left + 15:g},{_number(down)}) rotate(-90)"'
    return (
        text(f'x="{_number(across)}" y="{height - 10}"', panel.x.label)
        + text(turned, panel.y.label)
        + text(f'x="{_number(across)}" y="16"', panel.title, ' font-weight="bold"')
    )


def _band(series: Series, place: Place) -> str:
    there = [place(x, high) for x, _, high in series.band]
    back = [place(x, low) for x, low, _ in reversed(series.band)]
    colour = COLOURS[series.colour % len(COLOURS)]
    return f'<polygon points="{" ".join(there + back)}" fill="{colour}" fill-opacity="0.13"/>'


def _line(series: Series, place: Place) -> str:
    colour = COLOURS[series.colour % len(COLOURS)]
    at = [place(x, y) for x, y in series.points]
    line = ""
    if series.width and len(at) > 1:
        line = f'<polyline points="{" ".join(at)}" {_stroke(series, colour)}/>'
    if series.marker < 0:
        return line
    every = max(1, len(at) // 8)
    return line + "".join(_mark(series.marker, spot, colour) for spot in at[::every])


def _stroke(series: Series, colour: str) -> str:
    dash = DASHES[series.dash % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'fill="none" stroke="{colour}" stroke-width="{series.width:g}" stroke-linejoin="round"{dashed}'


def _mark(kind: int, spot: str, colour: str) -> str:
    x, y = map(float, spot.split(","))

    def path(*moves: tuple[float, float]) -> str:
        return "M" + "L".join(f"{_number(x + a)},{_number(y + b)}" for a, b in moves) + "Z"

    shapes = {
        0: f'<circle cx="{_number(x)}" cy="{_number(y)}" r="3.4"',
        1: f'<path d="{path((-3, -3), (3, -3), (3, 3), (-3, 3))}"',
        2: f'<path d="{path((0, -4.2), (4, 3), (-4, 3))}"',
        3: f'<path d="{path((0, -4.4), (4.4, 0), (0, 4.4), (-4.4, 0))}"',
        4: f'<path d="{path((0, 4.2), (4, -3), (-4, -3))}"',
    }
    shape = shapes[kind % len(shapes)]
    filled = colour if kind < len(shapes) else "#ffffff"
    return f'{shape} fill="{filled}" stroke="{colour}"/>'


def _legend(entries: dict[str, Series], top: int, width: int) -> tuple[str, int]:
    """Text and how many lines it has."""
    longest = max((len(name) for name in entries), default=1)
    least = 2 if width >= 600 else 1
    columns = max(least, min(len(entries), (width - LEFT) // (46 + 7 * longest)))
    step = (width - LEFT) / columns
    parts = []
    for index, (name, series) in enumerate(entries.items()):
        x, y = LEFT + (index % columns) * step, top + 6 + (index // columns) * LINE
        colour = COLOURS[series.colour % len(COLOURS)]
        if series.width:
            parts.append(f'<path d="M{_number(x)},{y}h30" {_stroke(series, colour)}/>')
        if series.marker >= 0:
            parts.append(_mark(series.marker, f"{x + 15:g},{y}", colour))
        parts.append(f'<text x="{_number(x + 37)}" y="{y + 4}" fill="#111827">{escape(name)}</text>')
    return "".join(parts), -(-len(entries) // columns)
