"""Options that several audits have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsecure.commands.places import path

__all__ = ["MAX_AUC", "MAX_TPR", "MaxAucOption", "MaxTprOption", "OutOption"]

MAX_TPR = typer.Option(min=0, max=1, help="Accepted true-positive rate at a false one of 0.01.")
MAX_AUC = typer.Option(min=0.5, max=1, help="Accepted area under the curve.")
MaxTprOption = Annotated[float, MAX_TPR]
MaxAucOption = Annotated[float, MAX_AUC]
OutOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder for report.json, report.html and its figures (.svg); made if absent, and an earlier report in it "
        "is replaced.",
        parser=path,
        metavar="<path>",
    ),
]
