"""The time of a private local step over a plain one: FedAvg's ``client_update`` as it is, on batches of one size.

Processor time, one thread. Kinds are measured in turn, so that the machine's load falls on all of them; what counts is
the ratio of their medians. Results are kept in ``benchmarks/out/dp/step.json`` and not measured again, but for --anew.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.method import ClientContext
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.privacy.context import NoiseSource, PrivacyContext
from fedsecure.privacy.noise import noise_source
from fedsecure.tensors import Tensors

OUT = Path(__file__).resolve().parent / "out" / "dp" / "step.json"
BATCH = 128
CLASSES = [str(c) for c in range(10)]
#: kind -> (source of noise, physical batch); ``None``: without differential privacy.
KINDS: dict[str, tuple[str, int] | None] = {
    "plain": None,
    "csprng, one part": ("csprng", BATCH),
    "csprng, two parts": ("csprng", BATCH // 2),
    "torch, one part": ("torch", BATCH),
    "discrete, one part": ("discrete", BATCH),
}
#: width of the ConvNet -> steps in one measurement.
WIDTHS = {32: 4, 128: 2}


class WholeBatches:
    """A noise source whose samples are all records, so that every step is on ``BATCH`` of them."""

    def __init__(self, source: NoiseSource) -> None:
        self.add, self.count = source.add, source.count

    def sample(self, records: int, q: float) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.arange(records, dtype=np.int64)


def update(width: int, steps: int, kind: tuple[str, int] | None) -> Callable[[], float]:
    """A function that makes ``steps`` steps anew and returns their seconds of processor time."""
    raw: dict[str, Any] = {
        "format": 1, "name": "step", "rounds": 1,
        "task": {"kind": "image", "classes": CLASSES, "shape": [1, 28, 28], "mean": [0.4], "std": [0.3]},
        "model": {"name": "convnet", "depth": 3, "width": width},
        "method": {"name": "fedavg", "local_steps": steps, "batch": BATCH, "lr": 0.01},
        "cohort": {"min_nodes": 2, "nodes": ["a", "b"]},
    }  # fmt: skip
    if kind is not None:
        raw["privacy"] = {
            "kind": "dp-sgd", "sigma": 1.0, "noise": kind[0], "batch": BATCH, "physical_batch": kind[1], "steps": steps,
        }  # fmt: skip
    plan = validate(Plan, raw, "step")
    method = build_method(plan)
    exchange = method.exchanges[0]
    broadcast = method.broadcast(exchange, method.init_server(0))
    rng = np.random.default_rng(0)
    x, y = rng.random((BATCH, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, BATCH)
    data = Dataset(x, y, tuple(CLASSES))
    privacy = None
    if plan.privacy is not None:
        counts = tuple(int(count) for count in data.counts())
        source = WholeBatches(noise_source(plan.privacy.noise))
        privacy = PrivacyContext(settings=plan.privacy, counts=counts, records=BATCH, noise=source)
    ctx = ClientContext("a", 0, 0, privacy=privacy)

    def run() -> float:
        started = time.process_time()
        method.client_update(exchange, broadcast, Tensors(), data, ctx)
        return time.process_time() - started

    return run


def measure(width: int, repeats: int) -> dict[str, Any]:
    """Seconds a step of each kind, in the order in which they were measured, and the load of the machine."""
    steps = WIDTHS[width]
    runs = {name: update(width, steps, kind) for name, kind in KINDS.items()}
    for run in runs.values():
        run()  # imports and first allocations
    load, seconds = os.getloadavg()[0], {name: list[float]() for name in KINDS}
    for _ in range(repeats):
        for name, run in runs.items():
            seconds[name].append(run() / steps)
    return {"width": width, "load": [round(load, 1), round(os.getloadavg()[0], 1)], "seconds": seconds}


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: milliseconds a step, ratio of medians, range of the repeats' own ratios."""
    lines = ["| width | step | ms | over plain | range of repeats |", "|---|---|---|---|---|"]
    for result in results:
        plain = result["seconds"]["plain"]
        for name, seconds in result["seconds"].items():
            ratios = [a / b for a, b in zip(seconds, plain, strict=True)]
            ratio = statistics.median(seconds) / statistics.median(plain)
            lines.append(
                f"| {result['width']} | {name} | {1000 * statistics.median(seconds):.0f} | {ratio:.2f} |"
                f" {min(ratios):.2f} to {max(ratios):.2f} |"
            )
    loads = [load for result in results for load in result["load"]]
    return "\n".join(lines) + f"\n\nLoad of the machine: {min(loads)} to {max(loads)}.\n"


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--anew", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    results = [] if arguments.anew or not OUT.is_file() else json.loads(OUT.read_text(encoding="utf-8"))
    for width in WIDTHS:
        if not any(result["width"] == width for result in results):
            results.append(measure(width, arguments.repeats))
            OUT.write_text(json.dumps(results, indent=1), encoding="utf-8")
    text = table(results)
    OUT.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
