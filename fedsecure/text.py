"""Text for people: made safe to show on a terminal, in a page or in a card; and counted things."""

from __future__ import annotations

__all__ = ["counted", "printable"]


def printable(text: str) -> str:
    """``text`` from elsewhere with everything that could move a cursor, hide, or turn other text around replaced by a
    space."""
    return "".join(c if c.isprintable() else " " for c in text)


def counted(number: int, thing: str, things: str = "") -> str:
    """``1 run``, ``2 runs``; ``things`` for a plural that is not ``thing`` and an s."""
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"
