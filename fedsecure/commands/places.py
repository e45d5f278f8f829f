"""The type of options that name where to write."""

from __future__ import annotations

from pathlib import Path

import typer

__all__ = ["path"]


def path(value: str) -> Path:
    """What such an option holds: ``typer.Option(parser=path, metavar="<path>")``. Raises ``typer.BadParameter`` for an
    empty name, which a ``Path`` takes for this folder."""
    if not str(value):
        raise typer.BadParameter("an empty name (this folder is '.')")
    return Path(value)
