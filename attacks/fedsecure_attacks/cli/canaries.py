"""``fedsecure audit canaries``: whether noise, clip and masks of a run are what was accounted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsecure.commands.output import JsonOption, say
from fedsecure.errors import ConfigError, DataError
from fedsecure_attacks.cli.exits import AllowOption, conclude, tell_verdict, usage
from fedsecure_attacks.cli.options import OutOption
from fedsecure_attacks.cli.places import require_places
from fedsecure_attacks.cli.progress import Steps

if TYPE_CHECKING:
    from fedsecure_attacks.canaries.results import CanaryAudit

__all__ = ["canaries"]

#: Fewer canaries show nothing (``canaries.directions``).
LEAST = 40


def canaries(
    plan: Annotated[Path, typer.Argument(help="Plan file with [privacy] and [simulation].", readable=False)],
    node: Annotated[str | None, typer.Option(help="Whose records canaries stand among; else the smallest's.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds of the plan that are run.")] = 1,
    count: Annotated[
        int, typer.Option("--canaries", min=LEAST, max=100_000, help="At most so many canaries, half of them in.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the canaries; the noise has none.")] = 0,
    out: OutOption = None,
    allow: AllowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put canaries into one node's DP-SGD and look for them in what leaves: are noise, clip and masks there?

    One run. Exit code: 0 nothing contradicts what was accounted, 13 something does, 11 too few canaries, 12 invalid
    (a mask that does not cancel, canaries that do not arrive), 2 a plan that is missing or has no DP-SGD.
    """
    from fedsecure.methods import build_method
    from fedsecure_attacks.canaries.audit import CanaryProfile, audit_canaries
    from fedsecure_attacks.canaries.results import canaries_report
    from fedsecure_attacks.planned import load_run
    from fedsecure_attacks.report.folder import NAMES, write_report

    try:
        require_places({"PLAN": plan}, out=out, names=NAMES)
        loaded, dealt = load_run(plan)
        progress = Steps(min(rounds, loaded.rounds) * len(build_method(loaded).exchanges), quiet=as_json)
        audit = audit_canaries(loaded, dealt.train, CanaryProfile(node, rounds, count, seed), progress)
        report = canaries_report(audit)
        written = [] if out is None else write_report(report, out)
    except (ConfigError, DataError) as error:
        raise usage(error) from None
    raise conclude(report, written, lambda: _tell(audit), allow=allow, as_json=as_json)


def _tell(audit: CanaryAudit) -> None:
    tell_verdict(audit.verdict, audit.controls, audit.notes)
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
