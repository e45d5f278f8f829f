"""``fedsecure audit canaries``: whether noise, clip and masks of a run are what was accounted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsecure.commands.output import JsonOption, fail_with, note, say
from fedsecure.errors import ConfigError, DataError
from fedsecure_attacks.cli_exits import USAGE, AllowOption, end

if TYPE_CHECKING:
    from fedsecure_attacks.canaries.results import CanaryAudit

__all__ = ["canaries"]


def canaries(
    plan: Annotated[Path, typer.Argument(help="Plan file with [privacy] and [simulation].", readable=False)],
    node: Annotated[str | None, typer.Option(help="Whose records canaries stand among; else the smallest's.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds of the plan that are run.")] = 1,
    count: Annotated[
        int, typer.Option("--canaries", min=1, max=100_000, help="At most so many canaries, half of them in.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the canaries; the noise has none.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.json and report.html; made if absent.", readable=False)
    ] = None,
    allow: AllowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put canaries into one node's DP-SGD and look for them in what leaves: are noise, clip and masks there?

    One run. Exit code: 0 nothing contradicts what was accounted, 13 something does, 11 too few canaries, 12 invalid
    (a mask that does not cancel, canaries that do not arrive), 2 a plan that is missing or has no DP-SGD.
    """
    from fedsecure.files import require_place
    from fedsecure_attacks.canaries.audit import CanaryProfile, audit_canaries
    from fedsecure_attacks.canaries.results import canaries_report
    from fedsecure_attacks.planned import load_run
    from fedsecure_attacks.report.folder import write_report
    from fedsecure_attacks.strictjson import dump

    progress = (lambda what: None) if as_json else (lambda what: note(f"{what} …"))
    try:
        if out is not None:
            require_place(out, error=ConfigError)
        loaded, dealt = load_run(plan)
        audit = audit_canaries(loaded, dealt.train, CanaryProfile(node, rounds, count, seed), progress)
        report = canaries_report(audit)
        written = [] if out is None else write_report(report, out)
    except (ConfigError, DataError) as error:
        raise typer.Exit(fail_with(type(error).__name__, str(error), error.hint, USAGE)) from None
    if as_json:
        typer.echo(dump(report), nl=False)
    else:
        _tell(audit)
        for path in written:
            say(f"wrote {path}")
    raise end(audit.verdict.word.value, audit.verdict.word.exit_code, allow)


def _tell(audit: CanaryAudit) -> None:
    say(f"{audit.verdict.word.value}: {audit.verdict.reason}")
    for control in audit.controls:
        say(f"control {control.name}: {'as it must be' if control.passed else 'FAILED'}: {control.said}")
    for line in audit.notes:
        say(f"note: {line}")
    if audit.views:
        say(
            f"{'seen':<6}{'delta':>10}{'estimate':>10}{'lower':>8}{'accounted':>11}{'largest':>9}{'noise':>8}{'clip':>7}"
        )
    for view in audit.views:
        for pair in view.against.pairs:
            first = pair.delta == audit.delta
            estimate = f"{view.estimate:.2f}" if first else ""
            rest = f"{view.noise:>8.3f}{view.clip:>7.3f}" if first else ""
            say(
                f"{view.view:<6}{pair.delta:>10.2g}{estimate:>10}{pair.lower:>8.2f}{pair.accounted:>11.2f}"
                f"{pair.largest:>9.2f}{rest}"
            )
