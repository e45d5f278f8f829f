"""``fedsecure audit release``: a release that is in a node's log, against the node's own people."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsecure.commands.output import JsonOption, note, say
from fedsecure.commands.places import path
from fedsecure.errors import ConfigError
from fedsecure_node.cli.options import DirOption

if TYPE_CHECKING:
    from fedsecure.plan import Plan
    from fedsecure.policy import Policy
    from fedsecure.schema import Contribution
    from fedsecure_attacks.gate import ReleaseAudit
    from fedsecure_node.log.releases import Release
    from fedsecure_node.settings import NodeSettings

__all__ = ["audit_again", "release"]


def release(
    release_id: Annotated[
        str, typer.Argument(metavar="RELEASE", help="Its number, or at least 8 digits of its SHA-256.")
    ],
    folder: DirOption = Path(),
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", parser=path, help="Write report.json, report.html and figures there."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Audit a node's release: the bytes that left, or waited to, against its own records and those held out.

    Everything stays on this machine. Exit code: 0 no leak detected, 10 leak, 11 inconclusive, 12 invalid.
    """
    from fedsecure_attacks.gate import dump, require_folder, show_release, write_report

    if out is not None:
        require_folder(out)
    item, made = audit_again(folder, release_id, quiet=as_json)
    written = {} if out is None else write_report(made, out)
    if as_json:
        typer.echo(dump(made.report()), nl=False)
    else:
        show_release(made)
        for line in _compared_with_gate(item, made.report()):
            say(f"note: {line}")
        for path in written.values():
            say(str(path))
    raise typer.Exit(made.verdict.word.exit_code)


@dataclass(frozen=True)
class _Found:
    """A release of the store, what it released, its plan, and the policy that it was checked against."""

    item: Release
    contribution: Contribution = field(repr=False)
    plan: Plan
    policy: Policy


def audit_again(folder: Path, wanted: str, *, quiet: bool) -> tuple[Release, ReleaseAudit]:
    """The release, and its full audit. Raises ``ConfigError`` when there is no such release or it holds no condensed
    data, ``ReleaseLogError`` when the log does not verify, ``DataError`` when the records do not fit its plan."""
    from fedsecure.methods import build_method
    from fedsecure_node.auditing.auditor import audit_seed, compare, profile_of
    from fedsecure_node.auditing.holdout import HeldOut
    from fedsecure_node.auditing.images import condensed
    from fedsecure_node.plans.localdata import LocalData
    from fedsecure_node.settings import load_settings

    settings = load_settings(folder)
    found = _find(settings, wanted)
    key, schema = found.item.key, build_method(found.plan).schema(found.item.key.exchange)
    released = condensed(found.plan, schema, found.contribution)
    if released is None or not len(released):
        raise ConfigError(
            f"release {found.item.number}: holds no condensed data, so there is nothing to audit",
            hint="see which do: fedsecure node releases",
        )
    split = HeldOut(LocalData(settings.data, lambda lines: None), settings.holdout).split(found.plan, found.policy)
    profile = profile_of("full", found.policy.audit, audit_seed(key))
    progress = (lambda what: None) if quiet else (lambda what: note(f"{what} …"))
    return found.item, compare(released, split.rest, split.out, profile, progress)


def _find(settings: NodeSettings, wanted: str) -> _Found:
    from fedsecure.policy import load_policy
    from fedsecure.schema import Contribution
    from fedsecure.tensors import Tensors
    from fedsecure_node.assemble import open_log
    from fedsecure_node.log.releases import find_release, fold
    from fedsecure_node.store.files import read_digest_named
    from fedsecure_node.store.store import Store

    with Store(settings.store, create=False) as store:
        item = find_release(fold(open_log(store, settings).records()), wanted)
        data = read_digest_named(store.runs.payload_path(item.payload), item.payload, "release")
        released = data[len(data) - int(item.body["payload"]["released_bytes"]) :]
        policy = load_policy(store.policy_path(str(item.body["policy"])))
        plan = store.plans.get(item.key.plan).plan()
    return _Found(item, Contribution(released=Tensors.from_bytes(released)), plan, policy)


def _compared_with_gate(item: Release, report: dict[str, Any]) -> list[str]:
    """What to know when this is read beside the audit that was made before the release left."""
    from fedsecure_attacks.gate import MEMBERS
    from fedsecure_node.log.audited import audit_line

    lines = [f"before it could leave, its audit said {audit_line(item.body)}"]
    gate = item.body["audit"].get("members")
    if gate and gate != report["inputs_sha256"][MEMBERS]:
        lines.append("the records are no longer those that it was made from, so some of these people are others")
    return lines
