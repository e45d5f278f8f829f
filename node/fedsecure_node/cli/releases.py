"""``fedsecure node releases | release | refuse | preview | verify-log``: what left, what waits, and proof of both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsecure.commands.output import JsonOption, emit_json, say
from fedsecure.errors import ConfigError
from fedsecure.text import counted
from fedsecure_node.cli.options import DirOption

if TYPE_CHECKING:
    from fedsecure_node.log.chain import Record
    from fedsecure_node.log.releases import Release

__all__ = ["forget_log", "preview", "read_records", "refuse", "release", "release_line", "releases", "verify_log"]

IdArgument = Annotated[str, typer.Argument(metavar="RELEASE", help="Its number, or at least 8 digits of its SHA-256.")]


def releases(folder: DirOption = Path(), as_json: JsonOption = False) -> None:
    """List every release, from the verified log."""
    from fedsecure_node.log.cohorts import cohort_decisions
    from fedsecure_node.log.differences import difference_lines
    from fedsecure_node.log.maskedrounds import known_sums
    from fedsecure_node.log.queries import entries
    from fedsecure_node.log.releases import fold

    records = read_records(folder)
    found = fold(records).values()
    answers = sum(1 for query in entries(records) if query.answered)
    cohorts = list(cohort_decisions(records))
    warnings = difference_lines(known_sums(found))
    if as_json:
        shown = {"releases": [r.to_json() for r in found], "answers": answers}
        emit_json({**shown, "cohorts": [decision.to_json() for decision in cohorts], "warnings": warnings})
        return
    if not found:
        say("nothing was released")
    for item in found:
        say(f"{item.number:>5}  {item.time[:19]}Z  {release_line(item)}  {item.words()}")
    if answers:
        left = counted(answers, "answer to a query", "answers to queries")
        say(f"besides, {left} left: fedsecure node queries")
    for decision in cohorts:
        say(f"{decision.record:>5}  {decision.time[:19]}Z  {decision.line()}")
    for line in warnings:
        say(line)


def release_line(item: Release) -> str:
    """A release in one line: what it is, how much of it leaves, its label, and the SHA-256 that it is named by."""
    body = item.body
    counts = body["class_counts"]
    images = f", {counted(sum(counts.values()), 'condensed record')}" if counts else ""
    return (
        f"{body['plan']['name']} {item.key}: {body['payload']['bytes']} bytes{_masked(item)}{images}, "
        f"guarantee {body['guarantee']['label']}, {_audited(body)}{item.named[:12]}"
    )


def _audited(body: Mapping[str, Any]) -> str:
    """The audit's word of what has condensed records: of the rest there is nothing to audit."""
    return f"audit {body['audit']['result']}, " if body["class_counts"] else ""


def _masked(item: Release) -> str:
    """What leaves besides, inside a masked sum."""
    stays = item.state in ("unsummed", "withheld", "refused", "unsent", "lapsed")
    return f" and {item.masked_bytes} under masks" if item.is_masked and not stays else ""


def read_records(folder: Path) -> tuple[Record, ...]:
    """All records of the node's log, verified. Raises ``ReleaseLogError``."""
    from fedsecure_node.assemble import open_log
    from fedsecure_node.settings import load_settings
    from fedsecure_node.store.store import Store

    settings = load_settings(folder)
    with Store(settings.store, create=False) as store:
        return open_log(store, settings).records()


def _decide(folder: Path, text: str, *, let_go: bool, reason: str, as_json: bool) -> None:
    from fedsecure_node.assemble import open_log
    from fedsecure_node.log.decisions import decide
    from fedsecure_node.log.releases import find_release, fold
    from fedsecure_node.plans.approvals import who
    from fedsecure_node.settings import load_settings
    from fedsecure_node.store.store import Store

    settings = load_settings(folder)
    with Store(settings.store, create=False) as store:
        log = open_log(store, settings)
        found = find_release(fold(log.records()), text)
        record = decide(log, found.number, release=let_go, by=who(), reason=reason)
    if as_json:
        emit_json({"release": found.number, "decision": record.kind, "by": record.body["by"], "record": record.seq})
        return
    say(f"release {found.number} ({found.named[:12]}) {record.kind} by {record.body['by']}")


def release(
    release_id: IdArgument,
    reason: Annotated[str, typer.Option(help="Why; kept in the log.")] = "",
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Let a held release leave."""
    _decide(folder, release_id, let_go=True, reason=reason, as_json=as_json)


def refuse(
    release_id: IdArgument,
    reason: Annotated[str, typer.Option(help="Why; kept in the log.")],
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Refuse a held release: it never leaves, and the node leaves its run."""
    _decide(folder, release_id, let_go=False, reason=reason, as_json=as_json)


def preview(
    release_id: Annotated[
        str, typer.Argument(metavar="RELEASE", help="Its number, at least 8 digits of its SHA-256, or all.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", readable=False, help="Folder for the files.")],
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Show what a release holds: a contact sheet of condensed images (PNG) and a page (HTML)."""
    from fedsecure_node.cli.previews import preview_releases

    written = preview_releases(folder, release_id, out)
    if as_json:
        shown = [{"release": n, **{kind: str(path) for kind, path in files.items()}} for n, files in written.items()]
        emit_json({"releases": shown} if release_id == "all" else shown[0])
        return
    for files in written.values():
        for path in files.values():
            say(str(path))
    if not written:
        say("nothing was released")


def verify_log(
    identity: Annotated[
        Path | None,
        typer.Option(
            metavar="PUB", readable=False, help="A copy of identity.pub kept elsewhere; default: the node's own."
        ),
    ] = None,
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Verify the release log and the bytes of every release: offline, changing nothing; and that the privacy ledger
    holds all that the log knows. DIR may also be a copied store, without the ledger."""
    from fedsecure.crypto.signatures import load_public_identity
    from fedsecure.files import exists, is_folder
    from fedsecure_node.cli.verification import verify_ledger, verify_node, verify_store
    from fedsecure_node.settings import CONFIG_NAME, load_settings

    if not is_folder(folder, ConfigError):
        raise ConfigError(f"{folder}: no such folder", hint="give the folder of node.toml, or a copied store, as --dir")
    if exists(folder / CONFIG_NAME, ConfigError):
        settings = load_settings(folder)
        found = verify_node(settings, load_public_identity(identity or settings.identity.with_suffix(".pub")))
        entries = verify_ledger(settings, found.records)
    else:
        entries = None
        found = verify_store(folder, load_public_identity(identity or folder / "identity.pub"))
    if as_json:
        emit_json(
            {
                "ok": True,
                "records": len(found.records),
                "releases": len(found.releases),
                "answers": found.answers,
                "cohorts": len(found.cohorts),
                "head": found.records[-1].hash if found.records else None,
                "identity": found.identity,
                "forgotten": found.forgotten,
                "ledger": entries,
            }
        )
        return
    answers = f" and {counted(found.answers, 'answer')} to queries" if found.answers else ""
    cohorts = f" and {counted(len(found.cohorts), 'decision')} on cohorts" if found.cohorts else ""
    say(f"{found.counts}{answers}{cohorts}: whole, in order, signed by {found.identity}")
    if entries is not None:
        say(f"privacy ledger: {counted(entries, 'entry', 'entries')}, among them all that the log knows")
    if found.forgotten:
        say(f"an earlier log was forgotten by {found.forgotten['by']}: {found.forgotten['reason']}")


def forget_log(
    reason: Annotated[str, typer.Option(metavar="TEXT", help="What happened to the store; kept in the new log.")],
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Go on without a release log that is lost, old or damaged: the new log's first record says who gave it up and
    why."""
    from fedsecure_node.cli.forgetting import forget_log as forget
    from fedsecure_node.plans.approvals import who
    from fedsecure_node.settings import load_settings

    done = forget(load_settings(folder), reason=reason, by=who())
    if as_json:
        told = {"by": done.by, "reason": done.reason, "fault": done.fault, "kept": done.kept or None}
        emit_json({**told, "ledger": done.ledger})
        return
    say(f"forgotten by {done.by}: {done.fault}")
    say(f"what is left of the old log: {done.kept or 'nothing'}; a new log begins with this as its first record")
    if not done.ledger:
        say("there is no privacy ledger: if one was lost as well, take what was spent off the cap in policy.toml")
