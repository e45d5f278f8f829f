"""What a demonstration with ``--dp`` shows besides: each node's ledger, and the accuracy that its noise costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fedsecure.commands.demo.processes import run_command
from fedsecure.commands.output import say

if TYPE_CHECKING:
    from rich.console import Console

    from fedsecure.commands.demo.federation import DemoFederation
    from fedsecure.plan import Plan

__all__ = ["add_budgets", "print_budgets"]


def add_budgets(result: dict[str, Any], federation: DemoFederation, plan: Plan, epsilon: float) -> None:
    """Put each node's ledger, as ``fedsecure node budget --json`` tells it, and the accuracies with the private
    ``plan`` and without beside the rest. ``epsilon``: the cap in every policy."""
    assert plan.privacy is not None
    for node in federation.nodes:
        told = json.loads(run_command(["node", "budget", "--dir", str(federation.node(node)), "--json"]))
        result["nodes"][node]["budget"] = told["budgets"][0]
    name = plan.method.name
    result["dp"] = {
        "epsilon": epsilon,
        "mechanism": plan.privacy.kind,
        "sigma": plan.privacy.sigma,
        "noise": plan.privacy.noise,
        "accuracy": {
            "with": result["methods"][f"{name}-dp"]["final_accuracy"],
            "without": result["methods"][name]["final_accuracy"],
        },
    }


def print_budgets(result: dict[str, Any], console: Console) -> None:
    """The same for people."""
    from rich.table import Table

    from fedsecure.privacy.labels import guarantee_words

    dp = result["dp"]
    table = Table(
        title=f"What each institution's records paid (fedsecure node budget; {dp['mechanism']}, {dp['noise']})"
    )
    for column in ("node", "records", "charges", "epsilon", "of", "delta", "releases that it covers", "and not"):
        table.add_column(column, justify="left" if column == "node" else "right")
    for name, node in result["nodes"].items():
        budget = node["budget"]
        labels = [release["guarantee"]["label"] for release in node["releases"]]
        table.add_row(
            *(name, str(node["records"]), str(sum(entry["kind"] == "charge" for entry in budget["entries"]))),
            *(f"{budget['epsilon']:.3f}", f"{budget['cap']:g}", f"{budget['delta']:.2g}"),
            *(str(labels.count("dp")), str(labels.count("none"))),
        )
    console.print(table)
    say(f"The label of the last of these releases of {next(iter(result['nodes']))}:")
    say(f"  {guarantee_words(_last_private(result))}")
    given = dp["accuracy"]
    say(f"Accuracy at the end: {_told(given['with'])} with differential privacy, {_told(given['without'])} without.")
    say(
        f"sigma {dp['sigma']:g} is the least with which the whole plan costs nobody more than {dp['epsilon']:g}, or"
        " that a policy allows. These are few records, so noise weighs much: of ten times as many it would be a tenth."
    )
    say(
        "The plan without noise ran on the same records, to compare: of its releases nothing is proven, and the ledger"
        " says so. An institution that means it sets privacy.required in its policy."
    )


def _last_private(result: dict[str, Any]) -> dict[str, Any]:
    """The label of the last release under differential privacy that the first institution made."""
    releases = next(iter(result["nodes"].values()))["releases"]
    return dict([release["guarantee"] for release in releases if release["guarantee"]["label"] == "dp"][-1])


def _told(accuracy: float | None) -> str:
    return "not measured" if accuracy is None else f"{accuracy:.3f}"
