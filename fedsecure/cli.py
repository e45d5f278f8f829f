"""The composition root: mounts the command groups. Nothing here, or at the top of a command module, imports torch."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from fedsecure import __version__
from fedsecure.commands.output import fail, fail_with, speaking_to
from fedsecure.errors import FedSecureError, StoreError
from fedsecure.files import advice, shown
from fedsecure.signals import asked_to_stop
from fedsecure.threads import lacks_thread, no_thread

__all__ = ["app", "main"]

#: What a shell reports of a program that SIGPIPE ended (128 + 13): whoever read the output has read enough.
READER_GONE = 141
#: What a shell reports of a program that Ctrl-C ended (128 + 2).
INTERRUPTED = 130
USAGE_HINT = "the options of a command: fedsecure COMMAND --help"


class _Group(TyperGroup):
    """All commands. Ends quietly where nobody reads the output any more (``fedsecure plan show … | head``)."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """As its base; help and version are printed here."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:
            raise SystemExit(READER_GONE) from None

    def invoke(self, ctx: Any) -> Any:
        """As its base."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise SystemExit(READER_GONE) from None
        except KeyboardInterrupt:  # here, since typer would end without a word
            raise SystemExit(_interrupted()) from None


app = typer.Typer(
    name="fedsecure",
    cls=_Group,
    help="Train together without pooling data: nodes, a coordinator, and a record of everything that leaves.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    pass


def _mount() -> None:
    from fedsecure.commands import analyst, ca, demo, plan, predict, simulate
    from fedsecure_attacks.cli import app as audit
    from fedsecure_coordinator import cli as coordinator
    from fedsecure_node.cli import app as node
    from fedsecure_node.cli import audits

    app.add_typer(ca.app, name="ca")
    audit.app.command("release")(audits.release)
    app.add_typer(node.app, name="node")
    app.add_typer(coordinator.app, name="coordinator")
    app.add_typer(analyst.app, name="analyst")
    app.add_typer(plan.app, name="plan")
    app.add_typer(audit.app, name="audit")
    app.command("predict")(predict.predict)
    app.command("simulate")(simulate.simulate)
    app.command("demo")(demo.demo)


def main() -> None:
    """Entry point of the ``fedsecure`` command: runs it and exits with its code (``fedsecure.errors.EXIT_CODES``)."""
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        os._exit(code or READER_GONE)
    except OSError:  # the disk that output goes to is full: the exit code still has to tell what happened
        os._exit(code)
    if asked_to_stop():  # a daemon that has stopped: no thread of a library keeps its process
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line in this process; returns the exit code instead of exiting."""
    with speaking_to(arguments) as as_json:
        return _run(arguments, as_json=as_json)


def _run(arguments: list[str], *, as_json: bool) -> int:
    try:
        ended = app(args=arguments, prog_name="fedsecure", standalone_mode=not as_json)
        return ended if isinstance(ended, int) else 0
    except TyperException as error:  # the command line itself is wrong; said here only with --json
        return fail_with("UsageError", " ".join(error.format_message().split()), USAGE_HINT, error.exit_code)
    except typer.Abort:
        return fail_with("Abort", "the question was not answered", "", 1)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except FedSecureError as error:
        return fail(error)
    except OSError as error:
        if error.filename is None:
            raise
        hint = advice(error, "check the path and the disk")
        return fail(StoreError(f"{shown(str(error.filename))}: {error.strerror}", hint=hint))
    except RuntimeError as error:
        if not lacks_thread(error):
            raise
        return fail(no_thread("this command"))
    except KeyboardInterrupt:
        return _interrupted()


def _interrupted() -> int:
    return fail_with("KeyboardInterrupt", "interrupted", "", INTERRUPTED)


_mount()
