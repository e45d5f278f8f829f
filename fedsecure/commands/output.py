"""How every command speaks: results on stdout (one object with ``--json``), errors on stderr as one line and a hint, or
with ``--json`` as one object on one line.

Nothing that is printed can steer a terminal: control characters of paths and names are escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Annotated, Any

import typer

from fedsecure.errors import FedSecureError, StoreError
from fedsecure.files import escaped

__all__ = ["JsonOption", "emit_json", "fail", "fail_with", "note", "say", "speaking_to"]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, for machines.")]
#: Whether errors are JSON objects now: the command line that runs asks for it.
_json: ContextVar[bool] = ContextVar("json", default=False)


@contextmanager
def speaking_to(arguments: Sequence[str]) -> Iterator[bool]:
    """Errors of this command line are JSON while the block lasts if it has ``--json``, which is what it yields."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    before = _json.set("--json" in options)
    try:
        yield _json.get()
    finally:
        _json.reset(before)


def say(text: str = "") -> None:
    """One line of result on stdout. Raises ``StoreError`` when it cannot be written (a full disk behind it)."""
    _result(escaped(text))


def _result(text: str) -> None:
    try:
        typer.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"standard output: {error.strerror}", hint="free space, or write elsewhere") from None


def note(text: str) -> None:
    """One line beside the result, on stderr: what a person should know and a pipe should not get."""
    typer.echo(escaped(text), err=True)


def emit_json(value: Any) -> None:
    """Strict JSON (no NaN) on stdout, keys in the order given. Raises as ``say``."""
    _result(_plain(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)))


def _plain(text: str) -> str:
    """JSON text with every character that could steer a terminal, or that is none, as its escape: the same value."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def fail(error: FedSecureError) -> int:
    """Print an error as one line plus its hint, on stderr, if it takes it; returns the exit code."""
    return fail_with(type(error).__name__, str(error), error.hint, error.exit_code)


def fail_with(name: str, message: str, hint: str, code: int) -> int:
    """As ``fail``, of anything that ends a command: ``name`` is its class. With ``--json`` it is the object ``{"error":
    name, "message": …, "hint": …, "exit_code": code}``, the last line on stderr."""
    with suppress(OSError):
        if _json.get():
            fault = {"error": name, "message": message, "hint": hint, "exit_code": code}
            print(_plain(json.dumps(fault, ensure_ascii=False)), file=sys.stderr)  # noqa: T201 - the one place that prints
            return code
        print(f"error: {escaped(message)}", file=sys.stderr)  # noqa: T201 - the one place that prints
        if hint:
            print(f"hint: {escaped(hint)}", file=sys.stderr)  # noqa: T201 - the one place that prints
    return code
