"""How the pictures of a report look, and how matplotlib writes them as SVG: the same figures give the same bytes,
whatever a user's matplotlibrc says, and look the same everywhere, for text is drawn as paths of one font.

Colours keep a contrast of 4.5 to white; lines differ by dashes and markers, too. Names in a report may be anybody's:
none is read as mathematics, and what the font has no glyph for is drawn as a box.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from fedsecure.files import escaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "DASHES", "GREY", "MARKERS", "Line", "drawable", "legend_below", "plot", "svg_of", "within"]

Point = tuple[float, float]
COLOURS = ("#0b5394", "#a3410a", "#0a6b4e", "#9d174d", "#5b21b6", "#0e6377", "#7a4a06", "#b91c1c")
GREY, GRID = "#374151", "#e5e7eb"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (8, 2, 2, 2)), (0, (4, 1.5, 1, 1.5, 1, 1.5)))
FONT, SIZE = "DejaVu Sans", 8.5
_LOOK: Any = {
    "svg.hashsalt": "fedsecure", "svg.fonttype": "path", "text.parse_math": False, "text.usetex": False,
    "font.family": [FONT], "font.size": SIZE, "axes.titlesize": SIZE + 0.5, "axes.titleweight": "bold",
    "axes.labelsize": SIZE, "legend.fontsize": SIZE, "axes.edgecolor": "#6b7280", "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": GRID, "axes.axisbelow": True,
    "axes.unicode_minus": True, "lines.markersize": 4.5, "legend.frameon": False, "legend.handlelength": 3.6,
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """``points`` in order; ``band``: (x, low, high). ``dash``: a number of a look; ``marker``: "" for none, ``hollow``
    or filled; ``shift``: at which point the first marker is, so that lines above each other can be told."""

    name: str
    points: Sequence[Point]
    colour: str = GREY
    dash: int = 0
    marker: str = ""
    hollow: bool = False
    width: float = 1.3
    shift: int = 0
    band: Sequence[tuple[float, float, float]] = ()


def svg_of(title: str, size: tuple[float, float], paint: Callable[[Figure], None]) -> str:
    """What ``paint`` draws into an empty figure of ``size`` inches, as SVG without a date."""
    from matplotlib.figure import Figure

    with _look():
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        paint(figure)
        written = io.StringIO()
        about = {"Title": drawable(title), "Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(written, format="svg", metadata=about)
    return written.getvalue()


@contextmanager
def _look() -> Iterator[None]:
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_LOOK)
        yield


def plot(axes: Axes, line: Line) -> Any:
    """Draw ``line`` and its band into ``axes``; returns what a legend shows of it."""
    if line.band:
        x, low, high = zip(*line.band, strict=True)
        axes.fill_between(x, low, high, color=line.colour, alpha=0.15, linewidth=0)
    every = max(1, len(line.points) // 8)
    x, y = zip(*line.points, strict=True) if line.points else ((), ())
    (drawn,) = axes.plot(
        x, y, color=line.colour, linewidth=line.width, linestyle=DASHES[line.dash % len(DASHES)],
        marker=line.marker or None, markevery=(line.shift % every, every), markeredgecolor=line.colour,
        markerfacecolor="white" if line.hollow else line.colour,
    )  # fmt: skip
    return drawn


def legend_below(figure: Figure, entries: dict[str, Any]) -> None:
    """One legend of two columns under all axes of ``figure``: name -> what ``plot`` returned."""
    names = [drawable(name) for name in entries]
    figure.legend(list(entries.values()), names, loc="outside lower center", ncols=2)


def drawable(text: str) -> str:
    """``text`` with nothing in it that steers, that the font has no glyph for (a box instead), or that takes a line out
    of a legend (an underscore at its beginning)."""
    shown = "".join(c if ord(c) in _glyphs() else "□" for c in escaped(text))
    return f" {shown}" if shown.startswith("_") else shown


@cache
def _glyphs() -> frozenset[int]:
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(findfont(FONT)).get_charmap())


def within(value: float, low: float, high: float) -> float:
    """``value``, put on the edge when it is outside."""
    return min(max(value, low), high)
