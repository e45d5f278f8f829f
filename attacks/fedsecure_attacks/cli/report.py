"""``fedsecure audit report``: the page of a report, from its JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedsecure.commands.output import say
from fedsecure.commands.places import path
from fedsecure.errors import ConfigError, DataError
from fedsecure_attacks.cli.exits import usage
from fedsecure_attacks.cli.places import require_file_place

__all__ = ["report"]


def report(
    report_json: Annotated[Path, typer.Argument(metavar="REPORT.json", help="A report of any audit.", readable=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page, which is made or replaced; by default beside the report, ending in .html.",
            parser=path,
            metavar="<path>",
        ),
    ] = None,
    dated: Annotated[bool, typer.Option("--dated", help="Put today's date (UTC) on the page.")] = False,
) -> None:
    """Make the page of a report: one file without scripts that loads nothing, to read, print and sign.

    Exit code: 0 whatever the verdict, 2 for a file that is no report.
    """
    from fedsecure_attacks.report.render import write_html
    from fedsecure_attacks.report.validate import read_report

    place = report_json.with_suffix(".html") if out is None else out
    try:
        require_file_place("--out", place, {"REPORT.json": report_json})
        found = read_report(report_json)
        write_html(found, place, date=datetime.now(UTC).date().isoformat() if dated else "", error=ConfigError)
    except (ConfigError, DataError) as error:
        raise usage(error) from None
    say(f"{found['verdict']}: {found['reason']}")
    say(f"wrote {place}")
