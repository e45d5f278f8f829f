"""What a figure of a report is: a drawing, the words to read it by, and the table that holds the same values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Figure", "Report", "rate_key", "short"]

Report = Mapping[str, Any]
#: Characters of a name in a legend.
MOST_NAME = 44


@dataclass(frozen=True)
class Figure:
    """``svg``; ``caption``, what to read from it; ``columns`` and ``rows``, the same figures in words."""

    name: str
    title: str
    caption: str
    svg: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def rate_key(attack: Mapping[str, Any], fpr: float = 0.01) -> str | None:
    """The key of the true-positive rate in an attack's object: at ``fpr``, or at whatever it was measured."""
    if (wanted := f"tpr_at_fpr_{fpr:g}") in attack:
        return wanted
    rest = sorted(k for k in attack if k.startswith("tpr_at_fpr_") and k.count("_") == 3)
    return rest[0] if rest else None


def short(name: str) -> str:
    """``name``, cut to what a legend has room for."""
    return name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 1]}…"
