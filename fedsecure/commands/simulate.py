"""``fedsecure simulate``: run a plan in one process and write ``result.json`` and the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsecure.commands.output import JsonOption, emit_json, say
from fedsecure.errors import ConfigError, DataError
from fedsecure.text import counted

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.plan import Plan
    from fedsecure.private_simulation import Paid
    from fedsecure.simulation import Simulator

__all__ = ["result_json", "simulate"]

#: Metrics of a round on its line.
_SHOWN = {"accuracy": "accuracy", "average_accuracy": "average", "routing_accuracy": "routing"}
#: Metrics of a system, which ``result.json`` repeats as ``final_<name>``.
_SYSTEM = ("system_accuracy", "average_accuracy", "routing_accuracy")
#: What becomes of ``secagg`` in one process.
_SUMS = {
    "required": "masked, by the real protocol among keys that are made for this run",
    "optional": 'not masked, as nobody signed a manifest here (secagg = "required" masks them)',
}
#: node -> class name -> records
Counts = dict[str, dict[str, int]]


def simulate(
    plan: Annotated[Path, typer.Argument(help="Plan file with a [simulation] table.", metavar="PLAN", readable=False)],
    out: Annotated[
        Path, typer.Option(help="Folder for result.json and model.safetensors; made if absent.", readable=False)
    ],
    json_output: JsonOption = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads of torch; 0 leaves its own choice.", min=0, max=1024)] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew even where OUT holds a part of this run.")] = False,
) -> None:
    """Run a plan with all its nodes in this process, on the data its [simulation] table names.

    A run that was cut short goes on from its last finished round, when --out is the same folder.
    """
    from fedsecure.commands.checkpoint import save_checkpoint, take_up
    from fedsecure.files import make_folder, require_place

    require_place(out, error=ConfigError)  # before hours of work, or minutes of reading
    simulator, counts, records = _prepare(plan, device, threads, quiet=json_output)
    make_folder(out, error=ConfigError)
    rounds = [] if fresh else take_up(simulator, records, out)
    for entry in rounds if not json_output else []:
        say(_line(entry) + " (from before)")
    paid: dict[str, Paid] = {}
    for report in simulator.rounds():
        rounds.append(report.to_json())
        save_checkpoint(simulator, rounds, records, out)
        paid = simulator.privacy() if report.epsilon else paid
        _write(out / "result.json", _json(result_json(simulator.plan, rounds, counts, paid)))
        if not json_output:
            say(_line(rounds[-1]))
    _write(out / "model.safetensors", simulator.method.model(simulator.server).to_bytes())
    if json_output:
        emit_json(result_json(simulator.plan, rounds, counts, simulator.privacy()))
    else:
        for line in _paid_words(simulator.privacy()):
            say(line)
        say(f"wrote {out / 'result.json'} and {out / 'model.safetensors'}")


def _prepare(path: Path, device: str, threads: int, *, quiet: bool) -> tuple[Simulator, Counts, str]:
    """The run; the nodes' records by class; and the digest of all records."""
    import time

    from fedsecure.commands.checkpoint import records_digest
    from fedsecure.compute import prepare
    from fedsecure.data.check import check_dataset
    from fedsecure.data.partition import deal, known_nodes
    from fedsecure.methods import build_method
    from fedsecure.plan import load_plan
    from fedsecure.simulation import Simulator
    from fedsecure.system_metrics import measure

    plan, simulation = load_plan(path)
    if simulation is None:
        raise ConfigError(f"{path}: no [simulation] table", hint="name its data and partition; see docs/data.md")
    if (nodes := known_nodes(simulation)) is not None:
        _check_cohort(path, plan, nodes)
    chosen = prepare(device, threads)
    dealt = deal(simulation, plan.task, plan.seed)
    data, test = dealt.train, dealt.test
    _check_cohort(path, plan, tuple(data))
    for node, dataset in data.items():
        try:
            check_dataset(dataset, plan)
        except DataError as error:
            raise DataError(f"node {node}: {error}", hint=error.hint) from None
    if not quiet:
        _introduce(plan, data, test, chosen)
    method, sizes = build_method(plan), {node: len(dataset) for node, dataset in data.items()}
    simulator = Simulator(
        plan,
        method,
        data,
        evaluate=lambda server, local: measure(plan, method, server, local, test, dealt.tests, sizes, device=chosen),
        evaluate_every=simulation.evaluate_every,
        clock=time.monotonic,
        device=chosen,
    )
    return simulator, {node: _class_counts(dataset) for node, dataset in data.items()}, records_digest(dealt)


def _check_cohort(path: Path, plan: Plan, nodes: tuple[str, ...]) -> None:
    """Raise ``ConfigError`` unless the partition's nodes are those of the plan's cohort, and enough."""
    from fedsecure.data.files import listed, shown

    dealt, cohort = f"{shown(path)}: simulation.partition deals records to", plan.cohort
    if cohort.nodes and set(nodes) != set(cohort.nodes):
        raise ConfigError(
            f"{dealt} {listed(nodes)}, but cohort.nodes names {listed(cohort.nodes)}",
            hint="name the same nodes in both, or leave cohort.nodes out where the method allows it",
        )
    if len(nodes) < cohort.min_nodes:
        raise ConfigError(
            f"{dealt} {len(nodes)} node{'s' * (len(nodes) > 1)}, but cohort.min_nodes is {cohort.min_nodes}",
            hint="deal to more nodes, or lower cohort.min_nodes",
        )


def _class_counts(dataset: Dataset) -> dict[str, int]:
    return {name: int(n) for name, n in zip(dataset.classes, dataset.counts(), strict=True)}


def _introduce(plan: Plan, data: dict[str, Dataset], test: Dataset, device: str) -> None:
    say(f"plan {plan.name} ({plan.digest()[:12]}): {plan.method.name}, {plan.rounds} rounds, on {device}")
    say(f"  preset {plan.preset}")
    for departure in plan.departures():
        say(f"    departs from it: {departure}")
    if plan.secagg != "off":
        say(f"  sums: {_SUMS[plan.secagg]}")
    if plan.privacy is not None:
        say(f"  privacy: {plan.privacy.kind}, sigma {plan.privacy.sigma:g}, {plan.privacy.noise} noise")
    for node, dataset in data.items():
        held = int((dataset.counts() > 0).sum())
        say(f"  {node}: {counted(len(dataset), 'record')} in {held} of {len(dataset.classes)} classes")
    say(f"  test: {counted(len(test), 'record')}")


def _line(entry: dict[str, Any]) -> str:
    known = [f"{words} {entry[key]:.4f}" for key, words in _SHOWN.items() if key in entry]
    return (
        f"round {entry['round']}: {''.join(part + ', ' for part in known)}{entry['bytes_up']:,} bytes up, "
        f"{entry['bytes_down']:,} down, {entry['seconds']:.1f} s"
    )


def _paid_words(paid: dict[str, Paid]) -> list[str]:
    """What each node paid of its privacy, a line each."""
    from fedsecure.privacy.labels import guarantee_words

    return [f"{node}: guarantee {guarantee_words(spent.label)}" for node, spent in paid.items()]


def result_json(plan: Plan, rounds: list[dict[str, Any]], counts: Counts, paid: dict[str, Paid]) -> dict[str, Any]:
    """The content of ``result.json``: ``final_accuracy`` is the last round's, ``best_accuracy`` the best round's
    (chosen on the test records, so it flatters; it stands here because the papers report it). ``privacy``: what each
    node paid; ``guarantee``: the weakest label that a node's releases have."""
    accuracies = [entry["accuracy"] for entry in rounds if "accuracy" in entry]
    system = {f"final_{name}": rounds[-1][name] for name in _SYSTEM if rounds and name in rounds[-1]}
    return {
        "plan": plan.name,
        "plan_digest": plan.digest(),
        "method": plan.method.name,
        "preset": plan.preset,
        "departures": plan.departures(),
        "masked": plan.secagg == "required",
        "rounds": rounds,
        "final_accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies, default=None),
        **system,
        "class_counts": counts,
        **({"privacy": {node: spent.to_json() for node, spent in paid.items()}} if paid else {}),
        "guarantee": _weakest([str(spent.label["label"]) for spent in paid.values()]),
    }


def _weakest(labels: list[str]) -> str:
    return next((label for label in ("none", "heuristic", "dp") if label in labels), "none")


def _json(result: dict[str, Any]) -> bytes:
    return json.dumps(result, indent=1, allow_nan=False).encode()


def _write(path: Path, data: bytes) -> None:
    from fedsecure.files import PUBLIC_FILE, write_durably

    write_durably(path, data, mode=PUBLIC_FILE, error=ConfigError)
