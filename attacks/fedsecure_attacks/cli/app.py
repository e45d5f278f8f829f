"""``fedsecure audit``: what can be told of members from what was released."""

from __future__ import annotations

import typer

from fedsecure_attacks.cli.canaries import canaries
from fedsecure_attacks.cli.files import files, show_audit
from fedsecure_attacks.cli.mechanism import mechanism, plan
from fedsecure_attacks.cli.report import report
from fedsecure_attacks.cli.selftest import selftest
from fedsecure_attacks.cli.spm import spm

__all__ = ["app", "show_audit"]

app = typer.Typer(
    name="audit",
    help="Measure what can be told of members from what was released.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    pass


app.command()(canaries)
app.command()(files)
app.command()(report)
app.command()(selftest)
app.command()(spm)
app.command()(mechanism)
app.command()(plan)
