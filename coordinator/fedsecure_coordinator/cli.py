"""``fedsecure coordinator``: make an identity, submit plans, run the daemon, see how runs stand, export a model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsecure.commands.enrolment import CaCertOption, CertOption, FingerprintOption, take_in
from fedsecure.commands.output import JsonOption, emit_json, fail, note, say
from fedsecure.errors import ConfigError, LocalProtocolError, StoreError
from fedsecure_coordinator import cli_cohort

if TYPE_CHECKING:
    from fedsecure_coordinator.settings import CoordinatorSettings
    from fedsecure_coordinator.store.journal import Access, Journal, RunRow

__all__ = ["app"]

app = typer.Typer(
    name="coordinator",
    help="Run rounds for the nodes of a federation; never see a record.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

app.add_typer(cli_cohort.app, name="cohort")

DirOption = Annotated[Path, typer.Option("--dir", help="Folder of coordinator.toml.", file_okay=False, readable=False)]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Digest of the plan, a prefix of it, or its name.")]


class LogFormat(StrEnum):
    """How the daemon writes its log."""

    TEXT = "text"
    JSON = "json"


@app.command()
def init(
    federation: Annotated[str, typer.Option(help="Name of the federation, as `ca init` was given it.")],
    dns: Annotated[list[str], typer.Option(help="Host name or address that nodes dial; repeatable.")],
    folder: DirOption = Path(),
    listen: Annotated[str, typer.Option(help="host:port to listen on.")] = "0.0.0.0:8443",
    as_json: JsonOption = False,
) -> None:
    """Make the coordinator's keys, its certificate request, and coordinator.toml."""
    from fedsecure.crypto.enrolment import create_identity
    from fedsecure_coordinator.setup import check_new, write_settings

    check_new(folder, federation=federation, listen=listen)
    made = create_identity(folder, federation=federation, role="coordinator", name="coordinator", dns=tuple(dns))
    path = write_settings(folder, federation=federation, listen=listen)
    if as_json:
        emit_json(
            {
                "federation": made.federation,
                "settings": str(path),
                "csr": str(made.csr),
                "csr_fingerprint": made.csr_fingerprint,
                "identity_fingerprint": made.identity_fingerprint,
            }
        )
        return
    say(f"settings: {path}")
    say(f"certificate request: {made.csr}")
    say(f"request fingerprint: {made.csr_fingerprint}")
    say("next: send the request to the keeper of the consortium CA, read the fingerprint out to them, and take in what")
    say("comes back with `fedsecure coordinator enroll`")


@app.command()
def enroll(
    cert: CertOption,
    ca_cert: CaCertOption,
    fingerprint: FingerprintOption,
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Take in the coordinator's certificate, after comparing the CA's fingerprint."""
    take_in(folder, cert, ca_cert, fingerprint, as_json=as_json)


@app.command()
def submit(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file.", readable=False)],
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Add a run. A daemon that is running takes it up within a second."""
    from fedsecure_coordinator.cohorts.manifests import FOLDER, Cohorts
    from fedsecure_coordinator.setup import submit_plan

    with _Store(folder, "create") as store:
        cohorts = Cohorts(store.settings.store / FOLDER)
        row, new = submit_plan(store.journal, plan, max_nodes=store.settings.limits.max_nodes, cohorts=cohorts)
    if row.ended:
        raise ConfigError(
            f"run {row.digest[:12]} ({row.name}): is over already: {row.phase}"
            + (f" ({row.reason})" * bool(row.reason)),
            hint="a plan runs once: change its name or seed to run it again; under masks, its seed",
        )
    if as_json:
        emit_json({"digest": row.digest, "name": row.name, "new": new, "state": row.phase})
        return
    say(row.digest)
    if not new:
        note(f"known already: {row.phase}")


@app.command()
def run(
    folder: DirOption = Path(),
    plan: Annotated[list[Path] | None, typer.Option(help="Submit this plan first; repeatable.", readable=False)] = None,
    exit_when_done: Annotated[bool, typer.Option(help="End when every run has ended.")] = False,
    log_format: Annotated[LogFormat, typer.Option(help="Log as text or as JSON lines.")] = LogFormat.TEXT,
) -> None:
    """Serve nodes until stopped by SIGTERM or SIGINT, which end it in an orderly way.

    With --exit-when-done the exit code is 17 when a run was aborted.
    """
    from fedsecure_coordinator.process import run_daemon

    run_daemon(folder, plans=tuple(plan or ()), exit_when_done=exit_when_done, log_format=log_format.value, show=fail)


@app.command()
def status(
    folder: DirOption = Path(),
    as_json: JsonOption = False,
    watch: Annotated[bool, typer.Option(help="Go on showing it, until Ctrl-C.")] = False,
) -> None:
    """Show whether the daemon runs, and how every run stands."""
    from fedsecure_coordinator.views.status import show_live, status_lines, status_of

    if watch and as_json:
        raise ConfigError("--watch and --json exclude each other", hint="ask for --json as often as needed")

    def look() -> dict[str, Any]:
        with _Store(folder) as store:
            return status_of(store.settings, store.journal)

    if watch:
        show_live(look)
    elif as_json:
        emit_json(look())
    else:
        for line in status_lines(look()):
            say(line)


@app.command()
def runs(folder: DirOption = Path(), as_json: JsonOption = False) -> None:
    """List all runs, and how they ended."""
    from fedsecure_coordinator.views.runs import run_summary

    with _Store(folder) as store:
        found = [run_summary(row) for row in store.journal.runs()]
    if as_json:
        emit_json({"runs": found})
        return
    for item in found:
        skipped = f"skipped: {', '.join(map(str, item['skipped']))}" if item["skipped"] else ""
        more = "; ".join(text for text in (item["reason"], skipped) if text)
        say(f"{item['digest'][:12]}  {item['name']}  {item['state']}  {item['submitted']}  {more}".rstrip())
    if not found:
        say("no runs")


@app.command()
def abort(
    run: RunArgument,
    folder: DirOption = Path(),
    reason: Annotated[str, typer.Option(help="Why, for the nodes and the record.")] = "ended by the operator",
    as_json: JsonOption = False,
) -> None:
    """End a run. It keeps its history; nodes are told the reason. Exit code 8: it is over."""
    from fedsecure.locks import is_held

    with _Store(folder, "write") as store:
        row = _row(store.journal, run)
        if row.ended:
            raise LocalProtocolError(
                f"run {row.digest[:12]} ({row.name}) is over already: {row.phase}"
                + f" ({row.reason})" * bool(row.reason),
                hint="there is nothing left to end",
            )
        text = " ".join(reason.split())[:500]
        store.journal.request_abort(row.digest, text)
        running = is_held(store.settings.store)
    if as_json:
        daemon = "running" if running else "stopped"
        emit_json({"digest": row.digest, "name": row.name, "reason": text, "daemon": daemon})
        return
    say(f"run {row.digest[:12]} ({row.name}) is being ended")
    if not running:
        say("the daemon is not running: it ends when the daemon next starts, before anything else is done for it")


@app.command()
def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="Folder to write to; made if missing.", file_okay=False, readable=False)],
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Write a run's model (safetensors), model card, plan and history."""
    from fedsecure.methods import build_method
    from fedsecure_coordinator.store.blobs import BlobStore
    from fedsecure_coordinator.views.export import export_run

    with _Store(folder) as store:
        blobs = BlobStore(store.settings.store / "blobs", reading=True)
        row = _row(store.journal, run)
        try:
            files = export_run(store.journal, blobs, row, out, build_method)
        except StoreError:  # a running daemon may just have replaced the state: the newer one then
            row = _row(store.journal, row.digest)
            files = export_run(store.journal, blobs, row, out, build_method)
    if as_json:
        emit_json(
            {
                "digest": row.digest,
                "state": row.phase,
                "reason": row.reason,
                "files": {what: str(path) for what, path in files.items()},
            }
        )
        return
    for path in files.values():
        say(str(path))
    if row.phase != "COMPLETED":
        note(
            f"run {row.digest[:12]} ({row.name}) was ABORTED ({row.reason}): this is its last state, no finished model"
            if row.ended
            else f"run {row.digest[:12]} ({row.name}) is not over: this is its latest state"
        )


def _row(journal: Journal, text: str) -> RunRow:
    from fedsecure_coordinator.views.runs import find_run

    return find_run(journal, text)


class _Store:
    """The settings and the journal of a folder, for one command that only reads unless ``access`` says more."""

    settings: CoordinatorSettings
    journal: Journal

    def __init__(self, folder: Path, access: Access = "read") -> None:
        from fedsecure_coordinator.setup import open_store

        self.settings, self.journal = open_store(folder, access)

    def __enter__(self) -> _Store:
        return self

    def __exit__(self, *error: Any) -> None:
        self.journal.close()
