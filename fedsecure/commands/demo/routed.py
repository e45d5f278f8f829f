"""The end of FedSPM's demonstration: an analyst asks about every held-out record, and the best-matched node answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedsecure.commands.demo.federation import enrol_analyst
from fedsecure.commands.demo.processes import Daemons, run_command
from fedsecure.errors import RunAborted

if TYPE_CHECKING:
    from fedsecure.commands.demo.federation import DemoFederation
    from fedsecure.data.dataset import Dataset
    from fedsecure.plan import Plan

__all__ = ["Routed", "ask_everything"]

#: Every node must serve the run within this time (seconds).
SERVE_SECONDS = 90.0
#: How many predictions are shown one by one.
EXAMPLES = 10


@dataclass(frozen=True)
class Routed:
    """What came back. ``examples``: a few predictions in full. ``answers``: records answered, by node."""

    queries: int
    system_accuracy: float
    routing_accuracy: float
    examples: list[dict[str, Any]]
    answers: dict[str, int]


def ask_everything(
    federation: DemoFederation,
    plan: Plan,
    tests: Mapping[str, Dataset],
    daemons: Daemons,
    tell: Callable[[str], None],
) -> Routed:
    """Send every held-out record of every institution through ``fedsecure predict``, once an analyst is enrolled."""
    import numpy as np

    if not federation.analyst.is_dir():
        enrol_analyst(federation, lambda command: tell(f"   $ {command}"))
    _await_serving(federation, plan, daemons)
    queries = federation.analyst / "queries.npz"
    np.savez(queries, x=np.concatenate([data.x for data in tests.values()]))
    command = ["predict", str(queries), "--run", plan.digest(), "--dir", str(federation.analyst)]
    tell(f"   $ fedsecure {' '.join(command)}")
    answers = json.loads(run_command([*command, "--json"]))["answers"]
    truth = [(node, plan.task.classes[c]) for node, data in tests.items() for c in data.y.tolist()]
    rows = [_row(answer, node, label) for answer, (node, label) in zip(answers, truth, strict=True)]
    rng = np.random.default_rng(plan.seed)
    shown = sorted(rng.choice(len(rows), min(EXAMPLES, len(rows)), replace=False).tolist())
    return Routed(
        queries=len(rows),
        system_accuracy=sum(row["right"] for row in rows) / len(rows),
        routing_accuracy=sum(row["node"] == row["from"] for row in rows) / len(rows),
        examples=[rows[i] for i in shown],
        answers={node: sum(row["node"] == node for row in rows) for node in tests},
    )


def _row(answer: Mapping[str, Any], node: str, label: str) -> dict[str, Any]:
    """One prediction beside the truth: ``from`` is the institution that the record came from."""
    return {
        "record": answer["record"],
        "from": node,
        "label": label,
        "node": answer["node"],
        "class": answer["class"],
        "probability": answer["probabilities"][answer["class"]],
        "component": max(range(len(answer["components"])), key=answer["components"].__getitem__),
        "right": answer["class"] == label,
    }


def _await_serving(federation: DemoFederation, plan: Plan, daemons: Daemons) -> None:
    """Wait until every node fetched what it answers with and asks for queries."""
    deadline = time.monotonic() + SERVE_SECONDS
    command = ["analyst", "models", "--dir", str(federation.analyst), "--json"]
    while True:
        daemons.check()
        models = json.loads(run_command(command))["models"]
        serving = [n for m in models if m["run"] == plan.digest() for n, reachable in m["nodes"].items() if reachable]
        if len(serving) == len(federation.nodes):
            return
        if time.monotonic() > deadline:
            raise RunAborted(
                f"only {len(serving)} of {len(federation.nodes)} nodes answer queries after {SERVE_SECONDS:.0f} s",
                hint=f"see {federation.root / 'logs'}",
            )
        time.sleep(0.5)
