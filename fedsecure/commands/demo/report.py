"""The end of a demonstration: the table, what left each node, and where to look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsecure.commands.demo.plans import key_of
from fedsecure.commands.demo.private import print_budgets
from fedsecure.commands.demo.processes import run_command
from fedsecure.commands.demo.runs import run_views
from fedsecure.commands.output import say

if TYPE_CHECKING:
    from rich.table import Table

    from fedsecure.commands.demo.federation import DemoFederation
    from fedsecure.commands.demo.routed import Routed
    from fedsecure.data.dataset import Dataset
    from fedsecure.plan import Plan

__all__ = ["add_routed", "collect", "print_report", "save"]

#: A table of more rounds than this shows every third.
MOST_ROUNDS = 6


def _ask(*arguments: str) -> Any:
    return json.loads(run_command([*arguments, "--json"]))


def collect(federation: DemoFederation, plans: list[Plan], data: dict[str, Dataset]) -> dict[str, Any]:
    """Everything that ``--json`` prints, but the seconds. Verifies every log, and writes previews and exports."""
    artefacts: dict[str, str] = {"folder": str(federation.root), "logs": str(federation.root / "logs")}
    views = {view["digest"]: view for view in run_views(federation)}
    methods = {}
    for plan in plans:
        key = key_of(plan)
        methods[key] = _method(views[plan.digest()])
        out = federation.root / "models" / plan.name
        run_command(["coordinator", "export", plan.digest(), "--dir", str(federation.coordinator), "--out", str(out)])
        artefacts[f"model.{key}"] = str(out / "model.safetensors")
        artefacts[f"model_card.{key}"] = str(out / "model_card.md")
        artefacts[f"plan.{key}"] = str(federation.root / "plans" / f"{plan.name}.toml")
    keys = {plan.digest(): key_of(plan) for plan in plans}
    nodes = {node: _node(federation, node, data[node], artefacts, keys) for node in federation.nodes}
    artefacts["result"] = str(federation.root / "result.json")
    return {"methods": methods, "nodes": nodes, "artefacts": artefacts}


def add_routed(result: dict[str, Any], routed: dict[str, Routed]) -> None:
    """Put what the analyst found, by plan, beside what the coordinator knows: FedSPM's accuracy is the routed system's,
    and that of FedAvg's one model on the same records is its system's. Predictions are shown of the first plan."""
    for name, method in result["methods"].items():
        if name in routed:
            method["final_accuracy"] = method["final_system_accuracy"] = routed[name].system_accuracy
            method["final_routing_accuracy"] = routed[name].routing_accuracy
        else:
            method["final_system_accuracy"] = method["final_accuracy"]
    shown = next(iter(routed.values()))
    result["routed"] = {"queries": shown.queries, "examples": shown.examples}
    for node in shown.answers:
        result["nodes"][node]["answers"] = sum(found.answers[node] for found in routed.values())


def save(result: dict[str, Any], path: Path) -> None:
    """Write the result as ``--json`` prints it."""
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False), encoding="utf-8")


def _method(view: dict[str, Any]) -> dict[str, Any]:
    rounds = [
        {
            "round": entry["round"],
            "accuracy": entry["metrics"].get("accuracy"),
            "bytes_up": sum(entry["bytes_up"].values()),
            "bytes_down": sum(entry["bytes_down"].values()),
            "metrics": entry["metrics"],
        }
        for entry in view["history"]
    ]
    accuracies = [r["accuracy"] for r in rounds if r["accuracy"] is not None]
    return {
        "plan": view["name"],
        "digest": view["digest"],
        "final_accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies, default=None),
        "rounds": rounds,
    }


def _node(
    federation: DemoFederation, node: str, dataset: Dataset, artefacts: dict[str, str], keys: dict[str, str]
) -> dict[str, Any]:
    """One node: its records, its releases from the verified log, and a preview of every single one of them. ``keys``:
    digests of plans -> what their results are called."""
    from fedsecure_node.cli.previews import preview_releases

    folder = str(federation.node(node))
    verified = _ask("node", "verify-log", "--dir", folder)
    releases = _ask("node", "releases", "--dir", folder)["releases"]
    queries = _ask("node", "queries", "--dir", folder)["queries"]
    previews = preview_releases(Path(folder), "all", federation.root / "previews" / node)
    for release in releases:
        name = f"{keys[release['plan']['digest']]}.round-{release['round']}.{release['exchange']}"
        files = previews[release["release"]]
        artefacts |= {f"preview.{node}.{name}.{kind}": str(path) for kind, path in files.items()}
    artefacts[f"log.{node}"] = str(Path(folder) / "store")
    return {
        "records": len(dataset),
        "records_per_class": {n: int(c) for n, c in zip(dataset.classes, dataset.counts(), strict=True) if c},
        "bytes_up": sum(r["payload"]["bytes"] for r in releases),
        "condensed": sum(sum((r["class_counts"] or {}).values()) for r in releases),
        "labels": sorted({r["guarantee"]["label"] for r in releases}),
        "log": {"verified": verified["ok"], "records": verified["records"], "head": verified["head"]},
        "releases": releases,
        "queries": queries,
    }


def print_report(result: dict[str, Any]) -> None:
    """The same for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(_accuracy_table(result))
    if "routed" in result:
        console.print(_routed_table(result["routed"]["examples"]))
    left = Table(title="What left each institution (from its signed log)")
    for column in ("node", "records", "in classes", "releases", "bytes", "condensed images", "guarantee"):
        left.add_column(column, justify="left" if column in ("node", "guarantee") else "right")
    for name, node in result["nodes"].items():
        left.add_row(
            *(name, str(node["records"]), str(len(node["records_per_class"])), str(len(node["releases"]))),
            *(f"{node['bytes_up']:,}", str(node["condensed"]), ", ".join(node["labels"])),
        )
    console.print(left)
    if "dp" in result:
        print_budgets(result, console)
    _print_places(result)


def _accuracy_table(result: dict[str, Any]) -> Table:
    """Rounds side by side, some of them where there are many; last, what the routed system reached."""
    from rich.table import Table

    rounds = max(len(m["rounds"]) for m in result["methods"].values())
    shown = range(rounds) if rounds <= MOST_ROUNDS else range(2, rounds, 3)
    table = Table(title="Accuracy on the held-out records")
    for column in ("method", *(f"round {i + 1}" for i in shown), *(["routed system"] if "routed" in result else [])):
        table.add_column(column, justify="left" if column == "method" else "right")
    table.add_column("sent by all nodes", justify="right")
    unmeasured: list[str] = []
    for name, method in result["methods"].items():
        figures = [_figure(method["rounds"][i]["accuracy"]) if i < len(method["rounds"]) else "–" for i in shown]
        if all(entry["accuracy"] is None for entry in method["rounds"]):
            unmeasured.append(name)
        if "routed" in result:
            figures.append(_figure(method["final_system_accuracy"]))
        table.add_row(name, *figures, f"{sum(r['bytes_up'] for r in method['rounds']):,} bytes")
    if unmeasured:
        table.caption = (
            f"–: not measured. No round of {', '.join(unmeasured)} can be: its heads never leave the nodes, so it is "
            "measured by asking them, at the end."
        )
    return table


def _figure(accuracy: float | None) -> str:
    return "–" if accuracy is None else f"{accuracy:.3f}"


def _routed_table(examples: list[dict[str, Any]]) -> Table:
    """Ten routed predictions, and who answered."""
    from rich.table import Table

    table = Table(title="Ten of the routed predictions")
    for column in ("record of", "answered by", "its answer", "probability", "component", "label there"):
        table.add_column(column, justify="right" if column == "probability" else "left")
    for row in examples:
        table.add_row(
            *(row["from"], row["node"], row["class"], f"{row['probability']:.3f}"),
            *(str(row["component"]), row["label"] + ("" if row["right"] else "  (wrong)")),
        )
    return table


def _print_places(result: dict[str, Any]) -> None:
    artefacts = result["artefacts"]
    pages = {name: path for name, path in artefacts.items() if name.startswith("preview.") and name.endswith(".html")}
    say(f"Look at what left: a page for each of the {len(pages)} releases, for instance")
    shown = {name.rsplit(".", 3)[0] + name.rsplit(".", 2)[1]: name for name in pages}  # the last round of each kind
    for name in shown.values():
        say(f"  {name.removeprefix('preview.').removesuffix('.html'):34} {pages[name]}")
    say("And at the rest:")
    for name in ("result", "logs", *(n for n in artefacts if n.startswith(("model.", "model_card.")))):
        say(f"  {name:34} {artefacts[name]}")
    say("No record left any institution.")
    if "dp" not in result:
        say("None of this is differentially private: every label says none.")
    say(f"{result['seconds']:.0f} s")
