"""How an audit's command ends: what was found is printed, then comes the verdict's exit code, or 0 where an undecided
one is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsecure.commands.output import fail_with, note, say
from fedsecure.errors import FedSecureError

if TYPE_CHECKING:
    from fedsecure_attacks.verdict import Control, Verdict

__all__ = ["USAGE", "Allow", "AllowOption", "conclude", "tell_verdict", "usage"]

#: Of a file or an option that is missing or is not what it should be. Verdicts have codes of their own, and 1 is a
#: crash.
USAGE = 2


class Allow(StrEnum):
    """The only verdict that may be allowed: a leak never is."""

    INCONCLUSIVE = "inconclusive"


AllowOption = Annotated[Allow | None, typer.Option(help="End with exit code 0 for this verdict, too.")]


def usage(error: FedSecureError) -> typer.Exit:
    """What a command raises for a file or an option that is wrong; ``error`` is told on stderr."""
    return typer.Exit(fail_with(type(error).__name__, str(error), error.hint, USAGE))


def conclude(
    report: Mapping[str, Any],
    written: Iterable[Path],
    tell: Callable[[], None],
    *,
    allow: Allow | None,
    as_json: bool,
) -> typer.Exit:
    """What a command raises last, with the exit code of ``report``. First the report goes to stdout as JSON, or
    ``tell`` says what was found, and the files ``written`` are named."""
    if as_json:
        from fedsecure_attacks.strictjson import dump

        typer.echo(dump(dict(report)), nl=False)
    else:
        tell()
        for path in written:
            say(f"wrote {path}")
    if allow is Allow.INCONCLUSIVE and report["verdict"] == "INCONCLUSIVE":
        note("INCONCLUSIVE is allowed: exit code 0 instead of 11")
        return typer.Exit(0)
    return typer.Exit(int(report["exit_code"]))


def tell_verdict(verdict: Verdict, controls: Iterable[Control], notes: Iterable[str]) -> None:
    """The verdict, and a line each for controls and notes, on stdout."""
    say(f"{verdict.word.value}: {verdict.reason}")
    for control in controls:
        say(f"control {control.name}: {'as it must be' if control.passed else 'FAILED'}: {control.said}")
    for line in notes:
        say(f"note: {line}")
