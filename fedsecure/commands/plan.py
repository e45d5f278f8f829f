"""``fedsecure plan``: look at a plan before anyone runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsecure.commands.output import JsonOption, emit_json, say
from fedsecure.errors import ConfigError

if TYPE_CHECKING:
    from fedsecure.plan import Plan
    from fedsecure.policy import Policy

__all__ = ["app"]

app = typer.Typer(
    help="Look at a plan file: in words, against a policy, as pictures, or write an example.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PlanArgument = Annotated[Path, typer.Argument(help="Plan file (TOML).", metavar="PLAN", readable=False)]
PolicyOption = Annotated[Path | None, typer.Option(help="Hold it against this policy.toml as well.", readable=False)]


@app.command()
def show(plan: PlanArgument, policy: PolicyOption = None, json_output: JsonOption = False) -> None:
    """Print a plan in words: what is computed, what leaves a node, how many bytes at most, and what departs from its
    preset."""
    from fedsecure.masked_plan import masked_exchanges
    from fedsecure.methods.outline import outline_of
    from fedsecure_node.plans.describe import describe
    from fedsecure_node.plans.masked_words import masks_json

    loaded, rules = _load(plan, policy)
    method = outline_of(loaded)
    if json_output:
        masks = masks_json(loaded, masked_exchanges(loaded, method))
        emit_json({**_summary(loaded, rules), "masks": masks, "plan": json.loads(loaded.canonical())})
        return
    fault = "" if policy else "none was given: add --policy FILE to see what an institution would say"
    for line in describe(loaded, rules, method, policy_fault=fault):
        say(line)


@app.command()
def check(plan: PlanArgument, policy: PolicyOption = None, json_output: JsonOption = False) -> None:
    """Check a plan file, and with --policy whether that policy allows it. Exit code 3: the file is wrong; 4: not
    allowed."""
    loaded, rules = _load(plan, policy)
    _check_masks(loaded)
    if json_output:
        emit_json(_summary(loaded, rules))
    if rules is not None:
        rules.check_plan(loaded)
    if not json_output:
        say(f"{plan}: right, digest {loaded.digest()}" + (f", allowed by {policy}" if policy else ""))


@app.command()
def example(
    name: Annotated[str, typer.Argument(help="Which example; without a name they are listed.", metavar="[NAME]")] = "",
) -> None:
    """Print an example plan file, to start one's own from."""
    from fedsecure.plan.examples import EXAMPLES, read_example

    if not name:
        for known in EXAMPLES:
            say(known)
    elif name in EXAMPLES:
        typer.echo(read_example(name), nl=False)
    else:
        raise ConfigError(f"no example plan {name!r} (allowed: {', '.join(EXAMPLES)})")


@app.command()
def sheet(
    plan: PlanArgument,
    out: Annotated[Path, typer.Option(help="PNG file to write; an earlier one is replaced.", readable=False)],
    record: Annotated[
        int | None,
        typer.Option(help="Show this record of the source, counted from 0, not one of each class.", min=0),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Draw what the nodes of a simulation with the partition 'dual-heterogeneity' see: one record of each class under
    the transforms of every node and component, with the label that it has there."""
    from fedsecure.data.dual_sheet import dual_sheet
    from fedsecure.files import PUBLIC_FILE, write_durably
    from fedsecure.plan import load_plan

    loaded, simulation = load_plan(plan)
    if simulation is None:
        raise ConfigError(f"{plan}: no [simulation] table", hint="name its data and partition; see docs/data.md")
    made = dual_sheet(simulation, loaded.task, loaded.seed, f"{loaded.name}, seed {loaded.seed}", record)
    write_durably(out, made.png, mode=PUBLIC_FILE, error=ConfigError)
    if json_output:
        emit_json({"sheet": str(out), "records": made.records, "labels": made.permutation.tolist()})
    else:
        say(f"wrote {out}")


def _load(plan: Path, policy: Path | None) -> tuple[Plan, Policy | None]:
    from fedsecure.plan import load_plan
    from fedsecure.policy import load_policy

    return load_plan(plan)[0], load_policy(policy) if policy else None


def _check_masks(plan: Plan) -> None:
    """Raise ``ConfigError`` when the plan asks for masked sums that cannot be exact: ring, bound and cohort."""
    if plan.secagg == "off":
        return
    from fedsecure.masked_plan import masked_exchanges
    from fedsecure.methods.outline import outline_of

    masked_exchanges(plan, outline_of(plan))


def _summary(plan: Plan, policy: Policy | None) -> dict[str, object]:
    violations = None if policy is None else policy.violations(plan)
    return {
        "name": plan.name,
        "digest": plan.digest(),
        "method": plan.method.name,
        "preset": plan.preset,
        "departures": plan.departures(),
        "allowed": None if violations is None else not violations,
        "violations": violations,
    }
