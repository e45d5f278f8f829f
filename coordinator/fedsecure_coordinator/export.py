"""What a run leaves behind: the model as safetensors, its card in Markdown, the plan, and the history as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsecure import __version__
from fedsecure.errors import ConfigError
from fedsecure.files import PUBLIC_FILE, make_folder, write_durably
from fedsecure.plan import Plan
from fedsecure.tensors import Tensors
from fedsecure_coordinator.blobs import BlobStore
from fedsecure_coordinator.journal import Journal, RunRow
from fedsecure_coordinator.runs import BuildMethod, plan_of
from fedsecure_coordinator.views import run_view

__all__ = ["GUARANTEES", "export_run", "model_card"]

#: Method -> the guarantee label of what nodes release, and why. Nothing that is not DP is called DP.
GUARANTEES: dict[str, tuple[str, str]] = {
    "fedavg": ("none", "nodes send model parameters; no noise is added"),
    "feddm": ("none", "nodes send condensed images; no noise is added"),
    "fedaf": ("none", "nodes send condensed images and class statistics; no noise is added"),
}


def export_run(
    journal: Journal, blobs: BlobStore, row: RunRow, out: Path, build_method: BuildMethod
) -> dict[str, Path]:
    """Write ``model.safetensors``, ``model_card.md``, ``plan.json``, ``history.json`` into ``out`` (made if missing).

    A run that is not over yields its latest state, and its card says so. Returns name -> path. Raises ``ConfigError``
    when the run has no model yet or ``out`` cannot be written, ``StoreError`` when the store is damaged.
    """
    if not row.server:
        raise ConfigError(f"run {row.digest[:12]} ({row.name}): has no model: {row.reason or 'it has not begun'}")
    plan = plan_of(row)
    model = build_method(plan).model(Tensors.from_bytes(blobs.get(row.server)))
    view = run_view(journal, row)
    files = {
        "model": ("model.safetensors", model.to_bytes()),
        "plan": ("plan.json", plan.canonical()),
        "history": ("history.json", json.dumps(view, indent=2, ensure_ascii=False, allow_nan=False).encode()),
        "card": ("model_card.md", model_card(plan, view, model).encode()),
    }
    make_folder(out, error=ConfigError)
    for name, data in files.values():
        write_durably(out / name, data, mode=PUBLIC_FILE, error=ConfigError)
    return {what: out / name for what, (name, _) in files.items()}


def model_card(plan: Plan, view: dict[str, Any], model: Tensors) -> str:
    """The card: what was trained, by whom, how well, and what is and is not promised about the records behind it."""
    label, why = GUARANTEES.get(plan.method.name, ("none", "no noise is added"))
    parts = [
        f"# Model card: {plan.name}",
        _facts(plan, view, model, f"`{label}`: {why}"),
        "## Plan\n\n" + _plan_in_words(plan),
        "## Cohort\n\n" + _cohort(view),
        "## Rounds\n\n" + _rounds(view),
        "## What this card does not say\n\n"
        "The figures are the coordinator's, on its own test records where it has any. "
        "No test for membership inference was made here; the label above is the guarantee that the nodes' releases "
        "carry, and without one the model may reveal something about single records.",
    ]
    return "\n\n".join(parts) + "\n"


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
        "Model": f"{plan.model.name}, {sum(a.size for a in model.values()):,} parameters, {model.nbytes:,} bytes",
        "Model digest": f"`{model.digest()}`",
        "Written by": f"fedsecure {__version__}",
    }
    return _table(("", ""), [(name, _cell(value)) for name, value in facts.items()])


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
    return _table(("round", "cohort", "stragglers", "bytes up", "bytes down", *map(_cell, names)), rows)


def _figure(value: float | str | None) -> str:
    return "not finite" if value is None else value if isinstance(value, str) else f"{value:.6g}"


def _table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(heading) + " |", "|" + " --- |" * len(heading)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _cell(text: object) -> str:
    """Text for a Markdown table: nothing in it can start markup or end the cell."""
    plain = " ".join(str(text).split())
    return plain.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*")
