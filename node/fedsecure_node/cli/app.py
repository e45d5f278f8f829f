"""``fedsecure node``: the institution's side. Verbs work while the daemon runs, which notices within a second or
two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedsecure.commands.enrolment import CaCertOption, CertOption, FingerprintOption, take_in
from fedsecure.commands.output import JsonOption, emit_json, say
from fedsecure.files import quoted
from fedsecure_node.cli import budget as cli_budget
from fedsecure_node.cli import cohort as cli_cohort
from fedsecure_node.cli import dp_plan as cli_dp_plan
from fedsecure_node.cli import plans as cli_plans
from fedsecure_node.cli import queries as cli_queries
from fedsecure_node.cli import releases as cli_releases
from fedsecure_node.cli.options import DirOption

__all__ = ["app"]

app = typer.Typer(
    name="node",
    help="An institution's node: joins runs that its policy and its people allow, and records all that leaves.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command()
def init(
    node_id: Annotated[str, typer.Argument(metavar="NODE_ID", help="Name of this node, as in hospital-a.")],
    federation: Annotated[str, typer.Option(help="Name of the federation.")],
    coordinator: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the coordinator listens.")],
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Make this node's keys, its certificate request, node.toml and an example of a policy."""
    from fedsecure_node.cli.first_steps import init_node

    made = init_node(folder, node=node_id, federation=federation, coordinator=coordinator)
    if as_json:
        emit_json(
            {
                "node": made.name,
                "federation": made.federation,
                "csr": str(made.csr),
                "csr_fingerprint": made.csr_fingerprint,
                "identity_fingerprint": made.identity_fingerprint,
            }
        )
        return
    say(f"node {made.name} of {made.federation} in {folder}")
    say(f"request      {made.csr}")
    say(f"fingerprint  {made.csr_fingerprint}")
    say(f"identity     {made.identity_fingerprint}")
    say(f"Next: send {made.csr} to the consortium's CA and read its fingerprint out by telephone; then")
    where = quoted(folder)
    say(f"  fedsecure node enroll --dir {where} --cert CERT --ca-cert CA_CERT --fingerprint FINGERPRINT_OF_THE_CA")
    say(f"Then write {folder / 'policy.toml'} (see policy.example.toml): without it, nothing is allowed.")


@app.command()
def enroll(
    cert: CertOption,
    ca_cert: CaCertOption,
    fingerprint: FingerprintOption,
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Take in this node's certificate, after comparing the CA's fingerprint."""
    take_in(folder, cert, ca_cert, fingerprint, as_json=as_json)


@app.command()
def check(
    plan: Annotated[
        Path | None, typer.Option(metavar="PLAN", readable=False, help="A plan file: check the records against it.")
    ] = None,
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Check configuration, keys, certificate, policy and, with a plan, the records. The exit code is the first
    fault's."""
    from fedsecure_node.cli.first_steps import check_node

    findings = check_node(folder, plan)
    if as_json:
        emit_json(
            {
                "ok": all(f.error is None for f in findings),
                "checks": [
                    {"what": f.what, "ok": f.error is None, "line": f.line, "hint": f.error.hint if f.error else ""}
                    for f in findings
                ],
            }
        )
    else:
        for finding in findings:
            say(f"{'ok ' if finding.error is None else 'NO '} {finding.what}: {finding.line}")
    for finding in findings:
        if finding.error is not None:
            raise finding.error


@app.command()
def run(
    exit_when_done: Annotated[
        bool, typer.Option("--exit-when-done", help="Stop when every run that this node joined has ended.")
    ] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Hold each release until a person decides.")] = False,
    log_format: Annotated[
        Literal["auto", "plain", "json"] | None, typer.Option(help="How to report; node.toml says it otherwise.")
    ] = None,
    folder: DirOption = Path(),
) -> None:
    """Run the daemon: dial the coordinator, take part in approved plans, stop on SIGTERM."""
    from fedsecure_node.assemble import run_node
    from fedsecure_node.settings import load_settings

    run_node(load_settings(folder), hold=hold, exit_when_done=exit_when_done, log_format=log_format or "")


app.command("plans")(cli_plans.plans)
app.command("approve")(cli_plans.approve)
app.command("refuse-plan")(cli_plans.refuse_plan)
app.command("dp-plan")(cli_dp_plan.dp_plan)
app.command("releases")(cli_releases.releases)
app.command("release")(cli_releases.release)
app.command("refuse")(cli_releases.refuse)
app.command("queries")(cli_queries.queries)
app.command("preview")(cli_releases.preview)
app.command("verify-log")(cli_releases.verify_log)
app.command("forget-log")(cli_releases.forget_log)
app.add_typer(cli_budget.app, name="budget")
app.add_typer(cli_cohort.app, name="cohort")
