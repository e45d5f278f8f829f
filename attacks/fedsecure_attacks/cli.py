"""``fedsecure audit``: what can be told of members from what was released."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsecure.commands.output import JsonOption, fail_with, note, say
from fedsecure.errors import AuditError, DataError

if TYPE_CHECKING:
    from fedsecure_attacks.files import FilesAudit
    from fedsecure_attacks.verdict import AttackResult

__all__ = ["app"]

app = typer.Typer(
    name="audit",
    help="Measure what can be told of members from what was released.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

#: Of a file that is missing or is not what it should be. Verdicts have codes of their own, and 1 is a crash.
USAGE = 2


@app.callback()
def _group() -> None:
    pass


@app.command()
def files(
    members: Annotated[Path, typer.Option(help="Records that the set was made from (.npz with x and y).")],
    nonmembers: Annotated[Path, typer.Option(help="Records of the same population that it was not made from.")],
    released: Annotated[Path, typer.Option(help="The condensed or synthetic set.")],
    reference: Annotated[
        Path | None, typer.Option(help="Further people of the population; else half of the non-members are used.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    max_tpr: Annotated[
        float, typer.Option(min=0, max=1, help="Accepted true-positive rate at a false one of 0.01.")
    ] = 0.02,
    max_auc: Annotated[float, typer.Option(min=0.5, max=1, help="Accepted area under the curve.")] = 0.55,
    as_json: JsonOption = False,
) -> None:
    """Audit any condensed or synthetic set, whoever made it: is membership in it visible?

    Exit code: 0 no leak detected, 10 leak, 11 inconclusive, 12 invalid, 2 a file is missing or wrong.
    """
    from fedsecure_attacks.files import Profile, audit_files
    from fedsecure_attacks.loading import load_labelled
    from fedsecure_attacks.strictjson import dump, files_report
    from fedsecure_attacks.verdict import Thresholds

    profile = Profile(seed=seed, thresholds=Thresholds(tpr=max_tpr, auc=max_auc))
    try:
        given = [
            load_labelled(path, name)
            for path, name in ((members, "members"), (nonmembers, "non-members"), (released, "released"))
        ]
        others = None if reference is None else load_labelled(reference, "reference")
    except DataError as error:
        raise typer.Exit(fail_with(type(error).__name__, str(error), error.hint, USAGE)) from None
    except AuditError as error:  # a value that is not finite: the audit is invalid, and says so as a verdict
        audit = invalid(error, profile)
    else:
        progress = (lambda what: None) if as_json else (lambda what: note(f"{what} …"))
        audit = audit_files(given[0], given[1], given[2], others, profile, progress)
    if as_json:
        typer.echo(dump(files_report(audit)), nl=False)
    else:
        _table(audit)
    raise typer.Exit(audit.verdict.word.exit_code)


def invalid(error: AuditError, profile: object) -> FilesAudit:
    """The audit of a file with values that are not numbers."""
    from fedsecure_attacks.files import FilesAudit, Profile
    from fedsecure_attacks.verdict import Verdict, Word

    assert isinstance(profile, Profile)
    return FilesAudit(Verdict(Word.INVALID, str(error)), profile, {})


def _table(audit: FilesAudit) -> None:
    say(f"{audit.verdict.word.value}: {audit.verdict.reason}")
    for control in audit.controls:
        say(f"control {control.name}: {'as it must be' if control.passed else 'FAILED'}: {control.said}")
    for line in audit.notes:
        say(f"note: {line}")
    if audit.results:
        say(f"{'attack':<26}{'area':>7}{'95 %':>16}{'TPR at FPR 0.01':>18}{'tail p':>10}")
    for result in audit.results:
        say(_row(result))


def _row(result: AttackResult) -> str:
    from fedsecure_attacks.statistics.roc import Rate

    rate = f"{result.tpr.value:.3f}" if isinstance(result.tpr, Rate) else "not measurable"
    between = f"{result.interval.low:.3f}..{result.interval.high:.3f}"
    return f"{result.name:<26}{result.auc:>7.3f}{between:>16}{rate:>18}{result.tail_adjusted:>10.1e}"
