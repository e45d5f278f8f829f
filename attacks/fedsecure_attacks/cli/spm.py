"""``fedsecure audit spm``: what the summed parameters of a run tell of one node's members."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsecure.commands.output import JsonOption, say
from fedsecure.commands.places import path
from fedsecure.errors import AuditError, ConfigError, DataError, RunAborted
from fedsecure_attacks.cli.exits import AllowOption, conclude, tell_verdict, usage
from fedsecure_attacks.cli.options import MaxAucOption, MaxTprOption, OutOption
from fedsecure_attacks.cli.places import require_places
from fedsecure_attacks.cli.progress import Parts

if TYPE_CHECKING:
    from fedsecure_attacks.spm.audit import SpmAudit

__all__ = ["spm"]


def spm(
    plan: Annotated[Path, typer.Argument(help="Plan file with a [simulation] table.", readable=False)],
    node: Annotated[str | None, typer.Option(help="Whose members; else the smallest node's.")] = None,
    halves: Annotated[int, typer.Option(min=4, max=1000, help="Runs, each with a random half of its records.")] = 8,
    observed: Annotated[int, typer.Option(min=1, max=100, help="Rounds of each that are attacked, at most.")] = 4,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Of the halves and all else that the audit draws.")
    ] = 0,
    cache: Annotated[
        Path | None, typer.Option(help="Folder in which runs are kept.", parser=path, metavar="<path>")
    ] = None,
    max_tpr: MaxTprOption = 0.02,
    max_auc: MaxAucOption = 0.55,
    out: OutOption = None,
    allow: AllowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train random halves of one node's records again, and tell members by updates, sums, routing head and model.

    For FedSPM, FedDRM and FedAvg. Exit code: 0 no leak detected, 10 leak, 11 inconclusive, 12 invalid, 2 a plan that is
    missing or wrong.
    """
    from fedsecure_attacks.planned import load_run
    from fedsecure_attacks.report.folder import NAMES, write_report
    from fedsecure_attacks.spm.audit import SpmProfile, audit_spm
    from fedsecure_attacks.spm.results import spm_report
    from fedsecure_attacks.verdict import Thresholds

    progress = Parts(quiet=as_json)
    profile = SpmProfile(node, halves, observed, seed, Thresholds(tpr=max_tpr, auc=max_auc))
    try:
        require_places({"PLAN": plan}, out=out, names=NAMES, cache=cache)
        loaded, dealt = load_run(plan)
        audit = audit_spm(loaded, dealt, profile, cache, progress)
        report = spm_report(audit)
        written = [] if out is None else write_report(report, out)
    except (AuditError, ConfigError, DataError, RunAborted) as error:
        raise usage(error) from None
    raise conclude(report, written, lambda: _tell(audit), allow=allow, as_json=as_json)


def _tell(audit: SpmAudit) -> None:
    from fedsecure_attacks.spm.results import theory_of
    from fedsecure_attacks.statistics.roc import Rate
    from fedsecure_attacks.statistics.theory import auc_of

    tell_verdict(audit.verdict, audit.controls, audit.notes)
    say(f"{'attack':<30}{'area':>7}{'95 %':>16}{'TPR at FPR 0.01':>18}{'tail p':>10}")
    for result in audit.results:
        rate = f"{result.tpr.value:.3f}" if isinstance(result.tpr, Rate) else "not measurable"
        between = f"{result.interval.low:.3f}..{result.interval.high:.3f}"
        masked = "  (masked)" if result.name in audit.hidden else ""
        say(f"{result.name:<30}{result.auc:>7.3f}{between:>16}{rate:>18}{result.tail.p:>10.1e}{masked}")
    for name, effect in theory_of(audit).items():
        say(f"theory, {name}: d' {effect:.3f}, area {auc_of(effect):.3f}")
    if "moments_cosine" in audit.measured:
        say(
            f"routing head: the mean of features that it implies has a cosine of {audit.measured['moments_cosine']:.2f}"
            f" with the members' own, and is off by {audit.measured['moments_gap']:.2f} of it"
        )
