"""The model card: what was trained, by whom, how well, how to load it, and what is not promised."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fedsecure import __version__
from fedsecure.plan import Plan
from fedsecure.plan.methods import RoutedSettings
from fedsecure.plan.task import ImageTask
from fedsecure.privacy.labels import MECHANISM_WORDS
from fedsecure.secagg.cohort.threshold import Threshold
from fedsecure.tensors import Tensors
from fedsecure.text import printable

__all__ = ["GUARANTEES", "LOADING", "ROUTING", "model_card"]

#: Method -> the guarantee label of what nodes release, and why. Nothing that is not DP is called DP.
GUARANTEES: dict[str, tuple[str, str]] = {
    "fedavg": ("none", "nodes send model parameters; no noise is added"),
    "feddm": ("none", "nodes send condensed images; no noise is added"),
    "fedaf": ("none", "nodes send condensed images and class statistics; no noise is added"),
    "fedspm": ("none", "nodes send the shared parameters and keep their heads; no noise is added"),
    "feddrm": ("none", "nodes send the shared parameters and keep their heads; no noise is added"),
}
#: A column of the table of rounds -> what it says.
COLUMNS: dict[str, str] = {
    "accuracy": "share of the coordinator's own test records that the model gets right (0 to 1): the result",
    "cross_entropy": "mean cross-entropy on those test records (nats)",
    "seconds": "from the start of the round to its new state",
    "server_accuracy": "accuracy on the condensed data itself while the coordinator trained on it: it says that this "
    "training went well, and is no result",
    "server_ce": "cross-entropy on the condensed data while the coordinator trained on it",
    "server_lgkm": "local-global knowledge matching: how far the model's outputs on the condensed data are "
    "from the nodes' soft labels",
    "log_likelihood": "mean of log P(node, class | record) over the nodes' own training records (nats)",
    "stationarity": "largest difference between the mean routing probability of a node's component and its share of "
    "the records: nearly zero where training has settled",
}
#: Loads the model, beside the files of an export. Executed by a test.
LOADING = """\
from pathlib import Path

import torch

from fedsecure.models import build_model, load_state, standardise
from fedsecure.plan import Plan
from fedsecure.tensors import Tensors
from fedsecure.text import printable

folder = Path(".")  # where model.safetensors and plan.json are
plan = Plan.model_validate_json((folder / "plan.json").read_bytes())
network = build_model(plan.model, plan.task, seed=0)
load_state(network, Tensors.from_bytes((folder / "model.safetensors").read_bytes()))
network.eval()

records = torch.rand(2, *plan.task.feature_shape)  # images: pixels in [0, 1]; tables: rows encoded as the plan says
with torch.no_grad():
    logits = network(standardise(plan.task, records))  # (n, classes)
names = [plan.task.classes[i] for i in logits.argmax(dim=1)]
"""
#: The same for a method that routes; what only the nodes have is not in the file.
ROUTING = """\
from pathlib import Path

import numpy as np

from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.tensors import Tensors
from fedsecure.text import printable

folder = Path(".")  # where model.safetensors and plan.json are
plan = Plan.model_validate_json((folder / "plan.json").read_bytes())
method = build_method(plan)
shared = Tensors.from_bytes((folder / "model.safetensors").read_bytes())

records = np.random.default_rng(0).random((2, *plan.task.feature_shape), dtype=np.float32)  # as the plan ranges them
scores = method.route(method.routing(shared), records)  # (n, nodes): log P(node | record), up to a constant of the row
names = [method.nodes[i] for i in scores.argmax(axis=1)]
"""


def model_card(plan: Plan, view: dict[str, Any], model: Tensors) -> str:
    """The card: what was trained, by whom, how well, and what is and is not promised about the records behind it."""
    label, why = _guarantee(plan)
    parts = [
        f"# Model card: {plan.name}",
        _facts(plan, view, model, f"`{label}`: {why}"),
        "## Plan\n\n" + _plan_in_words(plan),
        "## How to load it\n\n" + _loading(plan),
        "## Cohort\n\n" + _cohort(view),
        "## Rounds\n\n" + _rounds(view),
        "## What this card does not say\n\n"
        "The figures are the coordinator's, on its own test records where it has any. "
        "No test for membership inference was made here; the label above is the guarantee that the nodes' releases "
        "carry, and without one the model may reveal something about single records.",
    ]
    return "\n\n".join(parts) + "\n"


def _guarantee(plan: Plan) -> tuple[str, str]:
    """The label that releases of the plan's nodes have, and why. Which epsilon, each node knows of itself alone."""
    if plan.privacy is None:
        return GUARANTEES.get(plan.method.name, ("none", "no noise is added"))
    what = MECHANISM_WORDS[plan.privacy.kind]
    if plan.privacy.noise == "torch":
        return "heuristic", f"nodes send {what}; the noise can be repeated, so nothing is proven"
    return "dp", (
        f"nodes send {what}, {plan.privacy.noise} noise of sigma {plan.privacy.sigma:g}: differential privacy for each"
        " record, zero-out adjacency. Its epsilon follows from a node's own records and all that it sent before: it"
        " stands in the log of its releases, and nowhere else"
    )


def _loading(plan: Plan) -> str:
    if not isinstance(plan.method, RoutedSettings):
        return f"With `fedsecure` installed:\n\n```python\n{LOADING}```"
    return (
        "These are the parameters that all nodes share. They say which node knows records like a given one best; its "
        "answer takes heads that never left it, so ask it with `fedsecure predict`. To route, with `fedsecure` "
        f"installed:\n\n```python\n{ROUTING}```"
    )


def _facts(plan: Plan, view: dict[str, Any], model: Tensors, guarantee: str) -> str:
    ending = view["state"] + (f": {view['reason']}" if view["reason"] else "")
    if not view["ended"]:
        ending += " (not over: this is its latest state)"
    facts = {
        "Plan digest": f"`{view['digest']}`",
        "Terminal state": ending,
        "Submitted": view["submitted"],
        "Ended": view["ended"] or "-",
        "Guarantee": guarantee,
        **_sums(view),
        "Model": f"{_settings(plan.model.model_dump(mode='json', exclude_none=True))}; "
        f"{sum(a.size for a in model.values()):,} parameters, {model.nbytes:,} bytes",
        "Records": _scaling(plan),
        "Model digest": f"`{model.digest()}`",
        "Written by": f"fedsecure {__version__}",
    }
    return _table(("", ""), [(name, _cell(value)) for name, value in facts.items()])


def _sums(view: dict[str, Any]) -> dict[str, str]:
    """What masks kept from the coordinator; nothing to say of a run without them."""
    if not view["cohort"]:
        return {}
    least = Threshold(len(view["nodes"]["named"]), view["min_nodes"]).least
    return {
        "Sums": f"masked, by the cohort whose manifest is `{view['cohort'][:16]}…`: what was summed reached the "
        f"coordinator as sums over at least {least} nodes, never as one node's own"
    }


def _settings(settings: dict[str, Any]) -> str:
    """``convnet, depth 3, width 128``."""
    named = {k: v for k, v in settings.items() if k != "name"}
    return ", ".join([settings["name"], *(f"{k} {json.dumps(v)}" for k, v in named.items())])


def _scaling(plan: Plan) -> str:
    """How the model expects records to be scaled."""
    task = plan.task
    if isinstance(task, ImageTask):
        return f"pixels in [0, 1], then (x - mean) / std per channel: mean {list(task.mean)}, std {list(task.std)}"
    return "columns encoded and scaled as the plan says (plan.json, task.columns)"


def _plan_in_words(plan: Plan) -> str:
    task = plan.task
    records = f"{task.kind} records of shape {list(task.feature_shape)}, classes {', '.join(task.classes)}"
    settings = plan.method.model_dump(mode="json")
    rows = [(key, _cell(json.dumps(value))) for key, value in settings.items() if key != "name"]
    departures = "\n".join(f"* {_cell(d)}" for d in plan.departures()) or "* none"
    return (
        f"{plan.rounds} rounds of {plan.method.name} (preset {plan.preset}) training {plan.model.name} "
        f"on {_cell(records)}. "
        f"Seed {plan.seed}, randomness {plan.randomness}. A round needs {plan.cohort.min_nodes} nodes.\n\n"
        f"Departures from the preset:\n\n{departures}\n\n" + _table(("setting", "value"), rows)
    )


def _cohort(view: dict[str, Any]) -> str:
    nodes = view["nodes"]
    late = sorted({n for r in view["history"] for n in r["stragglers"]})
    rows = [
        ("named by the plan", ", ".join(nodes["named"]) or "any enrolled node"),
        ("joined", ", ".join(nodes["joined"]) or "none"),
        ("refused", "; ".join(f"{n}: {why}" for n, why in nodes["refused"].items()) or "none"),
        ("stragglers", ", ".join(late) or "none"),
        ("missing at the end", ", ".join(nodes["missing"]) or "none"),
    ]
    return _table(("", "nodes"), [(a, _cell(b)) for a, b in rows])


def _rounds(view: dict[str, Any]) -> str:
    history = view["history"]
    if not history:
        return "No round was begun."
    names = sorted({n for r in history for n in r["metrics"]})
    rows = [
        (
            str(r["round"]),
            _cell(", ".join(r["cohort"])),
            _cell(", ".join(r["stragglers"]) or "-"),
            f"{sum(r['bytes_up'].values()):,}",
            f"{sum(r['bytes_down'].values()):,}",
            *(_figure(r["metrics"].get(n, "")) for n in names),
        )
        for r in history
    ]
    table = _table(("round", "cohort", "stragglers", "bytes up", "bytes down", *map(_cell, names)), rows)
    lost = "".join(
        f"Round {r} was skipped: its masked sum was lost, and the model is as before it.\n\n" for r in view["skipped"]
    )
    return f"{table}\n\n{lost}{_columns(names)}"


def _columns(names: Sequence[str]) -> str:
    """What the columns say."""
    lines = ["* bytes up, bytes down: payload of all nodes together, to the coordinator and from it"]
    lines += [f"* {_cell(name)}: {COLUMNS[name]}" for name in names if name in COLUMNS]
    if any(name.startswith("accuracy.") for name in names):
        lines.append("* accuracy.CLASS: accuracy on the test records of that class")
    return "\n".join(lines)


def _figure(value: float | str | None) -> str:
    return "not finite" if value is None else value if isinstance(value, str) else f"{value:.6g}"


def _table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(heading) + " |", "|" + " --- |" * len(heading)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _cell(text: object) -> str:
    """Text for a Markdown table: nothing in it can start markup or end the cell."""
    plain = " ".join(printable(str(text)).split())
    return plain.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*")
