"""What a figure of a report is: a picture, the words to read it by, and the table that holds the same values."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["WIDTH", "Figure", "Report", "labelled", "rate_key", "short"]

Report = Mapping[str, Any]
#: Characters of a name in a legend.
MOST_NAME = 44
#: Inches: what a sheet of A4 has between its margins.
WIDTH = 7.1


@dataclass(frozen=True)
class Figure:
    """``svg``: the picture, ``size`` inches wide and high; ``alt``: what it shows, for those who do not see it;
    ``caption``: what to read from it; ``columns`` and ``rows``: the same values as text."""

    name: str
    title: str
    caption: str
    alt: str
    svg: str
    size: tuple[float, float]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def uri(self) -> str:
        """The picture as the source of an image: what is in it can neither run nor load anything."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height in CSS pixels."""
        return round(96 * self.size[0]), round(96 * self.size[1])


def rate_key(attack: Mapping[str, Any], fpr: float = 0.01) -> str | None:
    """The key of the true-positive rate in an attack's object: at ``fpr``, or at whatever it was measured."""
    if (wanted := f"tpr_at_fpr_{fpr:g}") in attack:
        return wanted
    rest = sorted(k for k in attack if k.startswith("tpr_at_fpr_") and k.count("_") == 3)
    return rest[0] if rest else None


def labelled(report: Report, name: str) -> str:
    """An attack's name, with what else must be known of it: that it decides, or that masks hide what it sees."""
    if name == report["primary"]:
        return f"{short(name)} (primary)"
    return f"{short(name)} (masked)" if name in report.get("hidden_by_masks", ()) else short(name)


def short(name: str) -> str:
    """``name``, cut to what a legend has room for."""
    return name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"
