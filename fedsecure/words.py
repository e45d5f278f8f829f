"""Small words of messages."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, thing: str, things: str = "") -> str:
    """``1 run``, ``2 runs``; ``things`` for a plural that is not ``thing`` and an s."""
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"
