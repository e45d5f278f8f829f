"""Accuracy against epsilon on Fashion-MNIST at CPU size: FedAF by Mechanisms A and B, FedSPM, FedDRM and FedAvg.

Three nodes, so that each has ten thousand records and more. FedAF runs on 28x28 images under Dirichlet(0.5) label skew,
the others on 16x16 under dual heterogeneity. A cell's sigma is the least with which its whole plan costs no node more
than the cell's epsilon, at delta 1 / (10 n); "none" is the same plan without [privacy], gradient methods with the rate
that suits them there. Mechanism B pays by noisy counts of records, sigma is from true ones: it may pay a little more.
Noise of private runs is the operating system's, so the same plan ends differently each time: ``--draws`` runs each
private cell so often.

Each cell is one ``fedsecure simulate`` run in ``benchmarks/out/dp/<cell>``: it goes on from its last finished round
when it was cut short, and is only read when it is finished. Cells run ``--jobs`` at a time with one thread each.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w
from cells import run_cell
from dp_report import plot, table

ROOT = Path(__file__).resolve().parent
OUT = ROOT / "out" / "dp"
PICTURE = ROOT.parent / "docs" / "dp-accuracy.svg"
CLASSES = [
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
]  # fmt: skip
NODES = ["node-1", "node-2", "node-3"]
FILES = {"kind": "torchvision", "name": "FashionMNIST", "path": "/usr/share/datasets/fashion-mnist"}
METHODS = ("fedaf-a", "fedaf-b", "fedspm", "feddrm", "fedavg")
SGD = {"kind": "dp-sgd", "batch": 256, "physical_batch": 256, "steps": 20}
#: Learning rate of the gradient methods; a clipped gradient needs a larger step (of 0.05, 0.2, 0.5 and 1, FedAvg with
#: epsilon 8 did best with 0.5).
RATE, PRIVATE_RATE = 0.05, 0.5
#: method -> [privacy], but for sigma.
PRIVACY: dict[str, dict[str, Any]] = {
    "fedaf-a": {"kind": "release"},
    "fedaf-b": {"kind": "per-step", "batch": 256},
    "fedspm": SGD,
    "feddrm": SGD,
    "fedavg": SGD,
}
#: method -> rounds.
ROUNDS = {"fedaf-a": 5, "fedaf-b": 5, "fedspm": 20, "feddrm": 20, "fedavg": 20}


@dataclass(frozen=True)
class Cell:
    """One run. ``epsilon``: ``None`` for the plan without [privacy], which both mechanisms of FedAF share."""

    method: str
    epsilon: float | None
    seed: int
    rounds: int
    draw: int = 0

    @property
    def name(self) -> str:
        at = "none" if self.epsilon is None else f"eps{self.epsilon:g}"
        method = "fedaf" if self.epsilon is None and self.method.startswith("fedaf") else self.method
        return f"{method}/{at}/t{self.rounds}-seed{self.seed}{f'-draw{self.draw}' if self.draw else ''}"

    def plan(self) -> dict[str, Any]:
        """The plan file's content; the private one's sigma is found once, and kept beside it."""
        raw = condensing(self.rounds, self.seed) if self.method.startswith("fedaf") else shared(self)
        if self.epsilon is None:
            return raw
        privacy = {"sigma": 1.0, **PRIVACY[self.method]}
        return {**raw, "privacy": {**privacy, "sigma": self._sigma({**raw, "privacy": privacy})}}

    def _sigma(self, raw: dict[str, Any]) -> float:
        from fedsecure.plan import load_plan
        from fedsecure.privacy.calibration import sigma_for_all

        kept = OUT / replace(self, draw=0).name / "sigma.json"
        if not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            (kept.parent / "calibrated.toml").write_text(tomli_w.dumps(raw), encoding="utf-8")
            plan = load_plan(kept.parent / "calibrated.toml")[0]
            assert self.epsilon is not None
            sigma = sigma_for_all(plan, records(self.method.startswith("fedaf"), self.seed), self.epsilon)
            kept.write_text(json.dumps(sigma), encoding="utf-8")
        return float(json.loads(kept.read_text(encoding="utf-8")))


def condensing(rounds: int, seed: int) -> dict[str, Any]:
    """FedAF's plan without [privacy]. A class of fewer than 500 records takes no part."""
    return {
        "format": 1, "name": "dp-fedaf", "seed": seed, "rounds": rounds, "randomness": "plan",
        "task": {"kind": "image", "classes": CLASSES, "shape": [1, 28, 28], "mean": [0.2861], "std": [0.3530]},
        "model": {"name": "convnet", "depth": 3, "width": 16},
        "method": {
            "name": "fedaf", "ipc": 10, "steps": 100, "min_count": 500,
            "server": {"epochs": 100, "batch": 64, "optimizer": "adam", "lr": 1e-3},
        },
        "cohort": {"min_nodes": 3, "nodes": NODES},
        "simulation": {
            "data": {**FILES, "split": "train"}, "test": {**FILES, "split": "test"},
            "partition": {"kind": "dirichlet", "nodes": 3, "alpha": 0.5},
        },
    }  # fmt: skip


def shared(cell: Cell) -> dict[str, Any]:
    """The plan of FedSPM (two components), FedDRM or FedAvg without [privacy]."""
    rate = RATE if cell.epsilon is None else PRIVATE_RATE
    steps = {"lr": rate, "batch": 256, "momentum": 0.9}
    router = {
        "name": "lenet", "channels": [8, 16], "groups": [4, 4], "hidden": 64, "padding": 2, "embedding": 32,
    }  # fmt: skip
    method: dict[str, Any] = {
        "name": cell.method, "router": router, "predict": {"steps": 20, **steps}, "route": {"steps": 20, **steps},
    }  # fmt: skip
    if cell.method == "fedspm":
        method["components"] = 2
    if cell.method == "fedavg":
        method = {"name": "fedavg", "local_steps": 20, "schedule": "cosine", **steps}
    return {
        "format": 1, "name": f"dp-{cell.method}", "seed": cell.seed, "rounds": cell.rounds, "randomness": "plan",
        "task": {"kind": "image", "classes": CLASSES, "shape": [3, 16, 16], "mean": [0.5], "std": [0.5]},
        "model": {"name": "convnet", "depth": 3, "width": 16, "embedding": 32},
        "method": method,
        "cohort": {"min_nodes": 3, "nodes": NODES},
        "simulation": {
            "evaluate_every": 10,
            "data": FILES,
            "partition": {"kind": "dual-heterogeneity", "nodes": 3, "alpha_inter": 5.0, "share": 0.7},
        },
    }  # fmt: skip


@cache
def records(condensed: bool, seed: int) -> dict[str, tuple[int, ...]]:
    """Each node's training records by class, as the simulation deals them; dealt once and kept."""
    from fedsecure.data.partition import deal
    from fedsecure.plan import load_plan

    kept = OUT / f"records-{'fedaf' if condensed else 'dual'}-seed{seed}.json"
    if not kept.is_file():
        OUT.mkdir(parents=True, exist_ok=True)
        raw = condensing(1, seed) if condensed else shared(Cell("fedavg", None, seed, 1))
        path = kept.with_suffix(".toml")
        path.write_text(tomli_w.dumps(raw), encoding="utf-8")
        plan, simulation = load_plan(path)
        assert simulation is not None
        dealt = deal(simulation, plan.task, plan.seed).train
        found = {node: [int(count) for count in data.counts()] for node, data in dealt.items()}
        kept.write_text(json.dumps(found), encoding="utf-8")
    return {node: tuple(counts) for node, counts in json.loads(kept.read_text(encoding="utf-8")).items()}


def cells(
    methods: list[str], epsilons: list[float | None], seeds: list[int], rounds: int, draws: int
) -> Iterator[Cell]:
    """Whole columns first, so that a part of the table can be read early."""
    for draw in range(draws):
        for seed in seeds:
            for method in methods:
                for epsilon in epsilons:
                    if not draw or epsilon is not None:
                        yield Cell(method, epsilon, seed, rounds or ROUNDS[method], draw)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--epsilons", nargs="+", default=["1", "3", "8", "20", "none"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--rounds", type=int, default=0, help="for a try; left out: the method's")
    parser.add_argument("--draws", type=int, default=1, help="runs of each private cell, each with noise of its own")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--read", action="store_true", help="run nothing: table and plot of finished cells")
    arguments = parser.parse_args()
    epsilons = [None if text == "none" else float(text) for text in arguments.epsilons]
    wanted = list(cells(arguments.methods, epsilons, arguments.seeds, arguments.rounds, arguments.draws))
    if arguments.read:
        wanted = [cell for cell in wanted if (OUT / cell.name / "result.json").is_file()]
    plans = {cell.name: cell.plan() for cell in wanted}  # in turn: PRV takes both cores already
    with ThreadPoolExecutor(arguments.jobs) as pool:
        ran = dict(zip(plans, pool.map(lambda name: run_cell(OUT / name, plans[name]), plans), strict=True))
    results = [(cell.method, cell.epsilon, plans[cell.name], ran[cell.name]) for cell in wanted]
    text = table(results)
    tried = bool(arguments.rounds)
    (OUT / ("try.md" if tried else "table.md")).write_text(text, encoding="utf-8")
    print(text)
    if not tried:
        plot(results, PICTURE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
