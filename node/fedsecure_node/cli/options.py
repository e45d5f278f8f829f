"""Options that every verb of ``fedsecure node`` shares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["DirOption"]

DirOption = Annotated[Path, typer.Option("--dir", metavar="DIR", readable=False, help="Folder of node.toml.")]
