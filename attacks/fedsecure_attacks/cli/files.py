"""``fedsecure audit files``: any condensed or synthetic set, whoever made it, from the records that were used and
others that were not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsecure.commands.output import JsonOption, say
from fedsecure.commands.places import path
from fedsecure.errors import AuditError, ConfigError, DataError
from fedsecure_attacks.cli.exits import AllowOption, conclude, tell_verdict, usage
from fedsecure_attacks.cli.options import MaxAucOption, MaxTprOption, OutOption
from fedsecure_attacks.cli.places import require_places
from fedsecure_attacks.cli.progress import Steps

if TYPE_CHECKING:
    from fedsecure_attacks.evidence import Shown
    from fedsecure_attacks.files import FilesAudit, Profile
    from fedsecure_attacks.records import Labelled
    from fedsecure_attacks.verdict import AttackResult

    Parts = tuple[Labelled, ...]

__all__ = ["files", "show_audit"]

#: Steps that an audit tells of: copies, the embedding, nine attacks, the evidence.
STEPS = 12


def files(
    members: Annotated[Path, typer.Option(help="Records that the set was made from (.npz with x and y).")],
    nonmembers: Annotated[Path, typer.Option(help="Records of the same population that it was not made from.")],
    released: Annotated[Path, typer.Option(help="The condensed or synthetic set.")],
    reference: Annotated[
        Path | None, typer.Option(help="Further people of the population; else half of the non-members are used.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of everything that is drawn.")] = 0,
    max_tpr: MaxTprOption = 0.02,
    max_auc: MaxAucOption = 0.55,
    min_class: Annotated[
        int, typer.Option(min=1, help="Fewest members of a class of which anything may be released.")
    ] = 10,
    out: OutOption = None,
    with_record_ids: Annotated[
        bool, typer.Option("--with-record-ids", help="Salted ids in the report; salt and table of rows in --out.")
    ] = False,
    with_private_images: Annotated[
        bool, typer.Option("--with-private-images", help="Pictures of people in the report; in --out alone.")
    ] = False,
    scores: Annotated[
        Path | None,
        typer.Option(
            help="Every record's scores (.npz), made or replaced: membership data, keep them.",
            parser=path,
            metavar="<path>",
        ),
    ] = None,
    allow: AllowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Audit any condensed or synthetic set, whoever made it: is membership in it visible?

    Exit code: 0 no leak detected, 10 leak, 11 inconclusive, 12 invalid, 2 a file or option is missing or wrong.
    """
    from fedsecure_attacks.files import Profile
    from fedsecure_attacks.strictjson import files_report
    from fedsecure_attacks.verdict import Thresholds

    asked = _Asked(members, nonmembers, released, reference, out, with_record_ids, with_private_images, scores)
    try:
        profile = Profile(seed=seed, thresholds=Thresholds(tpr=max_tpr, auc=max_auc, n_min=min_class))
        _require_places(asked)
        shown = _shown(asked)
        audit, pools = _audited(asked, profile, shown, quiet=as_json)
        report = files_report(audit)
        written = _written(asked, report, audit, pools, shown)
    except (ConfigError, DataError) as error:
        raise usage(error) from None
    raise conclude(report, written, lambda: show_audit(audit), allow=allow, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Paths and wishes of the command line."""

    members: Path
    nonmembers: Path
    released: Path
    reference: Path | None
    out: Path | None
    ids: bool
    private: bool
    scores: Path | None


def _require_places(asked: _Asked) -> None:
    """Raises ``ConfigError`` for a place that cannot be written, or holds what must not be replaced."""
    from fedsecure_attacks.evidence.identities import SALT, TABLE
    from fedsecure_attacks.report.folder import NAMES

    inputs = {
        "--members": asked.members, "--nonmembers": asked.nonmembers, "--released": asked.released,
        "--reference": asked.reference,
    }  # fmt: skip
    names = (*NAMES, SALT, TABLE) if asked.ids else NAMES
    require_places(inputs, out=asked.out, names=names, files={"--scores": asked.scores})


def _shown(asked: _Asked) -> Shown:
    """Raises ``ConfigError`` for people in a report that has no folder, ``DataError`` for a damaged salt."""
    from fedsecure_attacks.evidence import Shown
    from fedsecure_attacks.evidence.identities import read_or_draw

    if asked.out is None:
        for name, wanted in (("--with-record-ids", asked.ids), ("--with-private-images", asked.private)):
            if wanted:
                raise ConfigError(f"{name}: needs --out", hint="name a folder for the report")
        return Shown()
    return Shown(read_or_draw(asked.out) if asked.ids else None, pictures=True, private=asked.private)


def _audited(asked: _Asked, profile: Profile, shown: Shown, *, quiet: bool) -> tuple[FilesAudit, Parts]:
    """The audit, and members and non-members as they were in their files."""
    from fedsecure_attacks.files import FilesAudit, audit_files
    from fedsecure_attacks.loading import load_labelled
    from fedsecure_attacks.verdict import Verdict, Word

    named = ((asked.members, "members"), (asked.nonmembers, "non-members"), (asked.released, "released"))
    try:
        given = tuple(load_labelled(path, name) for path, name in named)
        others = None if asked.reference is None else load_labelled(asked.reference, "reference")
    except AuditError as error:  # a value that is not finite: the audit is invalid, and says so as a verdict
        return FilesAudit(Verdict(Word.INVALID, str(error)), profile, {}), ()
    progress = Steps(STEPS, quiet=quiet)
    return audit_files(given[0], given[1], given[2], others, profile, progress, shown=shown), given[:2]


def _written(asked: _Asked, report: dict[str, object], audit: FilesAudit, pools: Parts, shown: Shown) -> list[Path]:
    """What was asked for, on the disk."""
    from fedsecure_attacks.evidence.identities import SALT, write_ids
    from fedsecure_attacks.evidence.saving import write_scores
    from fedsecure_attacks.report.folder import write_report

    written = [] if asked.out is None else write_report(report, asked.out)
    if audit.scored is None:
        return written
    if asked.scores is not None:
        scored = audit.scored
        write_scores(asked.scores, scored.candidates, scored.inside, scored.scores, pools)
        written.append(asked.scores)
    if shown.salt is not None and asked.out is not None:
        written += [write_ids(asked.out, shown.salt, report, pools), asked.out / SALT]
    return written


def show_audit(audit: FilesAudit) -> None:
    """The verdict, controls, notes and a line an attack, on stdout."""
    tell_verdict(audit.verdict, audit.controls, audit.notes)
    if audit.results:
        say(f"{'attack':<26}{'area':>7}{'95 %':>16}{'TPR at FPR 0.01':>18}{'tail p':>10}")
    for result in audit.results:
        say(_row(result))


def _row(result: AttackResult) -> str:
    from fedsecure_attacks.statistics.roc import Rate

    rate = f"{result.tpr.value:.3f}" if isinstance(result.tpr, Rate) else "not measurable"
    between = f"{result.interval.low:.3f}..{result.interval.high:.3f}"
    return f"{result.name:<26}{result.auc:>7.3f}{between:>16}{rate:>18}{result.tail_adjusted:>10.1e}"
