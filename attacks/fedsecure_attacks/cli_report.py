"""``fedsecure audit report``: the page of a report, from its JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedsecure.commands.output import fail_with, say
from fedsecure.errors import ConfigError, DataError
from fedsecure.files import shown
from fedsecure_attacks.cli_exits import USAGE, usage

__all__ = ["report"]


def report(
    report_json: Annotated[Path, typer.Argument(metavar="REPORT.json", help="A report of any audit.", readable=False)],
    out: Annotated[
        Path | None, typer.Option(help="The page; by default beside the report, ending in .html.", readable=False)
    ] = None,
    dated: Annotated[bool, typer.Option("--dated", help="Put today's date (UTC) on the page.")] = False,
) -> None:
    """Make the page of a report: one file without scripts that loads nothing, to read, print and sign.

    Exit code: 0 whatever the verdict, 2 for a file that is no report.
    """
    from fedsecure_attacks.report.render import write_html
    from fedsecure_attacks.report.validate import read_report

    place = report_json.with_suffix(".html") if out is None else out
    if place == report_json:
        said = f"{shown(place)}: is the report itself"
        raise typer.Exit(fail_with("ConfigError", said, "name another file with --out", USAGE))
    try:
        found = read_report(report_json)
        write_html(found, place, date=datetime.now(UTC).date().isoformat() if dated else "", error=ConfigError)
    except (ConfigError, DataError) as error:
        raise usage(error) from None
    say(f"{found['verdict']}: {found['reason']}")
    say(f"wrote {place}")
