"""FedAvg, FedDRM and FedSPM on Fashion-MNIST under dual heterogeneity: the paper's Tables 1 and 2 at CPU size.

Each cell is one ``fedsecure simulate`` run in ``benchmarks/out/dual/<cell>``: it goes on from its last finished round
when it was cut short, and is only read when it is finished. Cells run ``--jobs`` at a time with one thread each.

The paper leaves open how strong the clients' shifts are; ``CONSTANTS`` were chosen by ``--calibrate``, which runs
FedAvg and FedDRM alone, before FedSPM was ever run with them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cells import run_cell, table

OUT = Path(__file__).resolve().parent / "out" / "dual"
CLASSES = [
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
]  # fmt: skip
NODES = [f"node-{i}" for i in range(1, 9)]


@dataclass(frozen=True)
class Constants:
    """What the paper leaves open, and what a CPU dictates. ``share`` of the 70,000 images; ``side`` in pixels;
    ``width`` of ResNet-8."""

    gain: float = 0.3
    ramp: float = 0.2
    rounds: int = 40
    share: float = 0.1
    side: int = 16
    width: int = 4
    crop: float = 0.6
    batch: int = 32
    lr: float = 0.02
    route_lr: float = 0.01


CONSTANTS = Constants()


@dataclass(frozen=True)
class Cell:
    """One run. ``method``: fedavg, feddrm, feddrm-shared, or fedspm with ``components`` and ``encoders``."""

    method: str
    seed: int
    components: int = 1
    encoders: str = "shared"
    alpha_inter: float = 1.0
    alpha_intra: float = 2.0
    e_step: str = "round"
    constants: Constants = field(default=CONSTANTS)

    @property
    def label(self) -> str:
        if self.method != "fedspm":
            return self.method
        batch = "-batch" if self.e_step == "batch" else ""
        return f"fedspm-{'1x' if self.encoders == 'shared' else 'cx'}-c{self.components}{batch}"

    @property
    def name(self) -> str:
        c = self.constants
        shifts = f"g{c.gain:g}-s{c.ramp:g}-c{c.crop:g}"
        size = f"t{c.rounds}-n{c.share:g}-p{c.side}-w{c.width}-b{c.batch}-lr{c.lr:g}-{c.route_lr:g}"
        return f"{shifts}-{size}/inter{self.alpha_inter:g}-intra{self.alpha_intra:g}/{self.label}/seed{self.seed}"

    def plan(self) -> dict[str, Any]:
        """The plan file's content."""
        c = self.constants
        return {
            "format": 1, "name": f"dual-{self.label}", "preset": "paper", "seed": self.seed, "rounds": c.rounds,
            "randomness": "plan",
            "task": {"kind": "image", "classes": CLASSES, "shape": [3, c.side, c.side], "mean": [0.5], "std": [0.5]},
            "model": {"name": "resnet", "blocks": [1, 1, 1], "width": c.width, "groups": 4, "embedding": 32},
            "method": self._method(),
            "cohort": {"min_nodes": 8, "nodes": NODES},
            "simulation": {
                "evaluate_every": 10,
                "data": {
                    "kind": "torchvision", "name": "FashionMNIST", "path": "/usr/share/datasets/fashion-mnist",
                },
                "partition": {
                    "kind": "dual-heterogeneity", "alpha_inter": self.alpha_inter, "alpha_intra": self.alpha_intra,
                    "gain": c.gain, "ramp": c.ramp, "share": c.share, "crop": c.crop,
                },
            },
        }  # fmt: skip

    def _method(self) -> dict[str, Any]:
        lr, batch = self.constants.lr, self.constants.batch
        router = {
            "name": "lenet", "channels": [8, 16], "groups": [4, 4], "hidden": 64, "padding": 2, "embedding": 32,
        }  # fmt: skip
        if self.method == "fedavg":
            return {
                "name": "fedavg", "local_steps": 10, "batch": batch, "lr": lr, "schedule": "cosine",
                "momentum": 0.9, "weight_decay": 5e-4,
            }  # fmt: skip
        steps = {"predict": {"lr": lr, "batch": batch}, "route": {"lr": self.constants.route_lr, "batch": batch}}
        if self.method == "feddrm-shared":
            return {"name": "feddrm", "backbone": "shared", "branch": 32, **steps}
        if self.method == "feddrm":
            return {"name": "feddrm", "router": router, **steps}
        return {
            "name": "fedspm", "components": self.components, "encoders": self.encoders, "e_step": self.e_step,
            "router": router, **steps,
        }  # fmt: skip


def run(cell: Cell) -> dict[str, Any]:
    """The cell's result."""
    return run_cell(OUT / cell.name, cell.plan())


def table_one(seeds: list[int]) -> Iterator[Cell]:
    """Methods side by side, those that matter most first. FedSPM with C = 1 is FedDRM, to the last bit."""
    wanted = [("fedavg", 1, "shared"), ("feddrm", 1, "shared")]
    wanted += [("fedspm", c, "shared") for c in (2, 3, 4)]
    wanted += [("feddrm-shared", 1, "shared")]
    wanted += [("fedspm", c, "separate") for c in (2, 3, 4)]
    for method, components, encoders in wanted:
        for seed in seeds:
            yield Cell(method, seed, components=components, encoders=encoders)


def table_two(seeds: list[int]) -> Iterator[Cell]:
    """The sweeps: alpha_inter at alpha_intra 2, and alpha_intra at alpha_inter 1."""
    settings = [(inter, 2.0) for inter in (0.5, 1.0, 2.0)] + [(1.0, intra) for intra in (0.5, 1.0)]
    for seed in seeds:
        for inter, intra in settings:
            for method, components in (("fedavg", 1), ("feddrm", 1), ("fedspm", 3)):
                yield Cell(method, seed, components=components, alpha_inter=inter, alpha_intra=intra)


def table_why(seeds: list[int]) -> Iterator[Cell]:
    """What may put FedSPM behind FedDRM: the rate that a component's head sees, the E-step, the number of rounds."""
    faster, longer = replace(CONSTANTS, lr=2 * CONSTANTS.lr), replace(CONSTANTS, rounds=2 * CONSTANTS.rounds)
    for seed in seeds:
        yield Cell("fedspm", seed, components=2, constants=faster)
        yield Cell("feddrm", seed, constants=faster)
        yield Cell("fedspm", seed, components=2, e_step="batch")
        yield Cell("fedspm", seed, components=2, constants=longer)
        yield Cell("feddrm", seed, constants=longer)


def calibration(seeds: list[int], grid: list[Constants]) -> Iterator[Cell]:
    """FedAvg and FedDRM alone."""
    for seed in seeds:
        for constants in grid:
            yield Cell("fedavg", seed, constants=constants)
            yield Cell("feddrm", seed, constants=constants)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("one", "two", "why", "calibrate"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--grid", nargs="*", default=[], help="for calibrate: key=value,key=value …")
    arguments = parser.parse_args()
    if arguments.table == "calibrate":
        types = {name: type(value) for name, value in asdict(CONSTANTS).items()}
        grid = []
        for text in arguments.grid or ["gain=0.12"]:
            pairs = dict(item.split("=") for item in text.split(","))
            grid.append(replace(CONSTANTS, **{k: types[k](v) for k, v in pairs.items()}))
        cells = list(calibration(arguments.seeds, grid))
    else:
        cells = list({"one": table_one, "two": table_two, "why": table_why}[arguments.table](arguments.seeds))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(run, cells))
    text = table((str(Path(c.name).parent), r) for c, r in zip(cells, results, strict=True))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"table-{arguments.table}.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
