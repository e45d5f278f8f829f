"""How every command speaks: results on stdout (one object with ``--json``), errors on stderr as one line and a hint."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from fedsecure.errors import FedSecureError, StoreError

__all__ = ["JsonOption", "emit_json", "fail", "note", "say"]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, for machines.")]


def say(text: str = "") -> None:
    """One line of result on stdout. Raises ``StoreError`` when it cannot be written (a full disk behind it)."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"standard output: {error.strerror}", hint="free space, or write elsewhere") from None


def note(text: str) -> None:
    """One line beside the result, on stderr: what a person should know and a pipe should not get."""
    typer.echo(text, err=True)


def emit_json(value: Any) -> None:
    """Strict JSON (no NaN) on stdout, keys in the order given. Raises as ``say``."""
    say(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def fail(error: FedSecureError) -> int:
    """Print an error as one line plus its hint, on stderr, if it takes it; returns the exit code."""
    with suppress(OSError):
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)  # noqa: T201
    return error.exit_code
