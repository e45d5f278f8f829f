"""Runs of ``fedsecure simulate`` in folders of their own, resumable, and figures over seeds."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from scipy import stats

__all__ = ["METRICS", "interval", "run_cell", "table"]

METRICS = ("final_system_accuracy", "final_average_accuracy", "final_routing_accuracy")


def run_cell(folder: Path, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The ``result.json`` of ``plan`` in ``folder``, computed as far as it is missing, with one thread.

    A cell that was cut short goes on from its last finished round; a finished one is only read.
    """
    result = folder / "result.json"
    if result.exists():
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        if len(found["rounds"]) == plan["rounds"]:
            return found
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "plan.toml"
    path.write_text(tomli_w.dumps(plan), encoding="utf-8")
    command = [sys.executable, "-m", "fedsecure", "simulate", str(path), "--out", str(folder), "--threads", "1"]
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        done = subprocess.run(command, check=False, stdout=log, stderr=log)
    if done.returncode:
        raise SystemExit(f"{folder}: exit {done.returncode}, see {folder / 'log.txt'}")
    return dict(json.loads(result.read_text(encoding="utf-8")))


def interval(values: list[float]) -> str:
    """Mean and half of the 95 % interval of the mean (Student's t), in per cent."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return f"{100 * mean:.1f}"
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * deviation / math.sqrt(len(values))
    return f"{100 * mean:.1f} ± {100 * half:.1f}"


def table(results: Iterable[tuple[str, dict[str, Any]]]) -> str:
    """Markdown: a row for each name, figures over its runs in the order of ``METRICS``."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, result in results:
        rows.setdefault(name, []).append(result)
    head = ["setting", "seeds", "system", "average", "routing", "seconds a run"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, found in rows.items():
        figures = [interval([r[m] for r in found]) if all(m in r for r in found) else "–" for m in METRICS]
        seconds = sum(sum(x["seconds"] for x in r["rounds"]) for r in found) / len(found)
        lines.append("| " + " | ".join([name, str(len(found)), *figures, f"{seconds:.0f}"]) + " |")
    return "\n".join(lines) + "\n"
