"""Text from elsewhere - class names, reasons - made safe to show: on a terminal, in a page, in a card."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """``text`` with everything that could move a cursor, hide, or turn other text around replaced by a space."""
    return "".join(c if c.isprintable() else " " for c in text)
