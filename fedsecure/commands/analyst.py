"""``fedsecure analyst``: somebody who asks the federation's models, with a certificate of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsecure.commands.enrolment import CaCertOption, CertOption, FingerprintOption, take_in
from fedsecure.commands.output import JsonOption, emit_json, note, say
from fedsecure.files import quoted

if TYPE_CHECKING:
    from fedsecure.analyst.settings import AnalystSettings

__all__ = ["AnalystDirOption", "app", "note_missing_list"]

app = typer.Typer(
    name="analyst",
    help="An analyst: asks the models of a federation, each query answered by the institution that knows best.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

AnalystDirOption = Annotated[Path, typer.Option("--dir", metavar="DIR", readable=False, help="Folder of analyst.toml.")]


@app.command()
def init(
    name: Annotated[str, typer.Option(help="Name of this analyst, as in dr-weber.")],
    federation: Annotated[str, typer.Option(help="Name of the federation.")],
    coordinator: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the coordinator listens.")],
    folder: AnalystDirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Make this analyst's keys, its certificate request and analyst.toml."""
    from fedsecure.analyst.settings import init_analyst

    made = init_analyst(folder, name=name, federation=federation, coordinator=coordinator)
    if as_json:
        emit_json(
            {
                "analyst": made.name,
                "federation": made.federation,
                "csr": str(made.csr),
                "csr_fingerprint": made.csr_fingerprint,
                "identity_fingerprint": made.identity_fingerprint,
            }
        )
        return
    say(f"analyst {made.name} of {made.federation} in {folder}")
    say(f"request      {made.csr}")
    say(f"fingerprint  {made.csr_fingerprint}")
    say(f"Next: send {made.csr} to the consortium's CA and read its fingerprint out by telephone; then")
    where = quoted(folder)
    say(f"  fedsecure analyst enroll --dir {where} --cert CERT --ca-cert CA_CERT --fingerprint FINGERPRINT_OF_THE_CA")
    say(f"Each institution whose node is to answer adds {made.name} to prediction.analysts of its policy.")


@app.command()
def enroll(
    cert: CertOption,
    ca_cert: CaCertOption,
    fingerprint: FingerprintOption,
    folder: AnalystDirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Take in this analyst's certificate, after comparing the CA's fingerprint."""
    take_in(folder, cert, ca_cert, fingerprint, as_json=as_json)
    if not as_json:
        say(f"Put the CA's revocation list, crl.pem, into {quoted(folder)} too, now and whenever there is a new one.")


@app.command()
def models(folder: AnalystDirOption = Path(), as_json: JsonOption = False) -> None:
    """List the runs whose model answers queries, newest first, and the nodes that can be reached."""
    from fedsecure.analyst.session import list_models
    from fedsecure.analyst.settings import load_settings
    from fedsecure.files import shown

    settings = load_settings(folder)
    note_missing_list(settings, folder)
    found = list_models(settings)
    if as_json:
        emit_json(
            {
                "models": [
                    {
                        "run": model.run,
                        "name": model.plan.name,
                        "method": model.plan.method.name,
                        "classes": list(model.plan.task.classes),
                        "nodes": nodes,
                    }
                    for model, nodes in found
                ]
            }
        )
        return
    for model, nodes in found:
        there = ", ".join(f"{node}{'' if reachable else ' (not reachable)'}" for node, reachable in nodes.items())
        say(f"{model.run}  {model.plan.name}  {model.plan.method.name}")
        say(f"  classes  {shown(', '.join(model.plan.task.classes))}")
        say(f"  nodes    {there}")
    if not found:
        say("no model answers queries at this moment")


def note_missing_list(settings: AnalystSettings, folder: Path) -> None:
    """Say on stderr that revoked nodes are not known here: nobody but the analyst checks whom a sealed query is for."""
    if settings.tls.crl is None:
        note(
            f"note: no revocation list in {quoted(folder)}: a revoked node would still be trusted; "
            "put the CA's crl.pem there"
        )
