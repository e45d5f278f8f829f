"""How an audit's command ends: with its verdict's exit code, or with 0 where an undecided one is allowed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fedsecure.commands.output import note

__all__ = ["USAGE", "Allow", "AllowOption", "end"]

#: Of a file or an option that is missing or is not what it should be. Verdicts have codes of their own, and 1 is a
#: crash.
USAGE = 2


class Allow(StrEnum):
    """The only verdict that may be allowed: a leak never is."""

    INCONCLUSIVE = "inconclusive"


AllowOption = Annotated[Allow | None, typer.Option(help="End with exit code 0 for this verdict, too.")]


def end(verdict: str, exit_code: int, allow: Allow | None) -> typer.Exit:
    """What a command raises last; where the code is not the verdict's, it says so on stderr."""
    if allow is Allow.INCONCLUSIVE and verdict == "INCONCLUSIVE":
        note("INCONCLUSIVE is allowed: exit code 0 instead of 11")
        return typer.Exit(0)
    return typer.Exit(exit_code)
