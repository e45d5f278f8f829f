"""``fedsecure simulate``: run a plan in one process and write ``result.json`` and the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsecure.commands.output import JsonOption, emit_json, say
from fedsecure.errors import ConfigError

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.plan import Plan
    from fedsecure.simulation import RoundReport, Simulator

__all__ = ["result_json", "simulate"]


def simulate(
    plan: Annotated[Path, typer.Argument(help="Plan file with a [simulation] table.", metavar="PLAN")],
    out: Annotated[Path, typer.Option(help="Folder for result.json and model.safetensors; made if absent.")],
    json_output: JsonOption = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads of torch; 0 leaves its own choice.", min=0)] = 0,
) -> None:
    """Run a plan with all its nodes in this process, on the data its [simulation] table names."""
    from fedsecure.commands.files import write_atomically

    simulator, counts = _prepare(plan, device, threads, quiet=json_output)
    out.mkdir(parents=True, exist_ok=True)
    reports: list[RoundReport] = []
    for report in simulator.rounds():
        reports.append(report)
        if not json_output:
            say(_line(report))
        # Written after every round, so that a long run that is cut short leaves what it has.
        result = result_json(simulator.plan, reports, counts)
        write_atomically(out / "result.json", json.dumps(result, indent=1, allow_nan=False).encode())
    write_atomically(out / "model.safetensors", simulator.method.model(simulator.server).to_bytes())
    if json_output:
        emit_json(result_json(simulator.plan, reports, counts))
    else:
        say(f"wrote {out / 'result.json'} and {out / 'model.safetensors'}")


def _prepare(path: Path, device: str, threads: int, *, quiet: bool) -> tuple[Simulator, dict[str, dict[str, int]]]:
    import time

    from fedsecure.commands.compute import choose_device, set_threads
    from fedsecure.data.check import check_dataset
    from fedsecure.data.partition import deal
    from fedsecure.evaluation import evaluate
    from fedsecure.methods import build_method
    from fedsecure.plan import load_plan
    from fedsecure.simulation import Simulator

    plan, simulation = load_plan(path)
    if simulation is None:
        raise ConfigError(f"{path}: no [simulation] table", hint="name its data and partition; see docs/data.md")
    chosen = choose_device(device)
    set_threads(threads)
    data, test = deal(simulation, plan.task, plan.seed)
    for dataset in data.values():
        check_dataset(dataset, plan)
    counts = {node: _class_counts(dataset) for node, dataset in data.items()}
    if not quiet:
        _introduce(plan, data, test, chosen)
    simulator = Simulator(
        plan,
        build_method(plan),
        data,
        evaluate=lambda model: evaluate(plan, model, test),
        clock=time.monotonic,
        device=chosen,
    )
    return simulator, counts


def _class_counts(dataset: Dataset) -> dict[str, int]:
    return {name: int(n) for name, n in zip(dataset.classes, dataset.counts(), strict=True)}


def _introduce(plan: Plan, data: dict[str, Dataset], test: Dataset, device: str) -> None:
    say(
        f"plan {plan.name} ({plan.digest()[:12]}): {plan.method.name}, preset {plan.preset}, {plan.rounds} rounds, {device}"
    )
    for departure in plan.departures():
        say(f"  departs from the preset: {departure}")
    for node, dataset in data.items():
        held = int((dataset.counts() > 0).sum())
        say(f"  {node}: {len(dataset)} records in {held} of {len(dataset.classes)} classes")
    say(f"  test: {len(test)} records")


def _line(report: RoundReport) -> str:
    accuracy = report.metrics.get("accuracy", float("nan"))
    up, down = sum(report.bytes_up.values()), sum(report.bytes_down.values())
    return f"round {report.round + 1}: accuracy {accuracy:.4f}, {up:,} bytes up, {down:,} down, {report.seconds:.1f} s"


def result_json(plan: Plan, reports: list[RoundReport], counts: dict[str, dict[str, int]]) -> dict[str, Any]:
    """The content of ``result.json``: ``final_accuracy`` is the last round's, ``best_accuracy`` the best round's (which,
    chosen on the test records, flatters; it stands here because the papers report it)."""
    accuracies = [r.metrics["accuracy"] for r in reports if "accuracy" in r.metrics]
    return {
        "plan": plan.name,
        "plan_digest": plan.digest(),
        "method": plan.method.name,
        "preset": plan.preset,
        "rounds": [r.to_json() for r in reports],
        "final_accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies, default=None),
        "class_counts": counts,
        "guarantee": "none",
    }
