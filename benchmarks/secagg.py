"""What a masked sum costs: ours, Flower's SecAgg+, and the bare AES-256-CTR keystream, side by side in one run.

Each cell (nodes, values, drop-outs) is measured several times, ours and theirs in turn, so that a noisy machine slows
both; figures are processor time, ratios are medians of the ratios of neighbouring measurements. Flower comes from PyPI
into a virtual environment of its own, ``benchmarks/out/flower``. Cells that are finished in ``benchmarks/out/secagg``
are only read; one that was cut short goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from secagg_report import plot, tables

HERE = Path(__file__).resolve().parent
OUT = HERE / "out" / "secagg"
FLOWER = HERE / "out" / "flower"
FLOWER_VERSION = "1.42.0"
#: N * d beyond which one session takes minutes and gigabytes: fewer are measured.
LARGE = 10**8


@dataclass(frozen=True)
class Cell:
    """``dropped`` of ``nodes`` vanish after their shares and before their vectors of ``elements`` float32.

    With 50 nodes a session of Flower's takes a minute, most of it in Shamir's scheme: it is repeated less.
    """

    nodes: int
    elements: int
    dropped: int
    repeats: int
    flower_repeats: int

    @property
    def threshold(self) -> int:
        return 2 * self.nodes // 3 + 1

    @property
    def path(self) -> Path:
        return OUT / f"n{self.nodes}-d{self.elements}-drop{self.dropped}.json"


def cells(quick: bool) -> list[Cell]:
    """Smallest first. ``quick``: ends in under ten minutes on two cores."""
    sizes = [(n, d) for n in (3, 10) for d in ((10**5, 10**6) if quick else (10**5, 10**6, 10**7))]
    sizes += [(50, d) for d in ((10**5,) if quick else (10**5, 10**6, 10**7))]
    found = []
    for nodes, elements in sorted(sizes, key=lambda size: size[0] * size[1]):
        most = nodes - (2 * nodes // 3 + 1)
        for dropped in sorted({0, most} if quick else {0, min(1, most), most}):
            repeats = 2 if nodes * elements > LARGE else 3 if nodes == 50 or elements == 10**7 else 7
            flower = repeats if nodes < 50 else 1 if quick or elements > 10**5 else 3  # minutes each
            found.append(Cell(nodes, elements, dropped, repeats, flower))
    return found


class Worker:
    """A process that measures: a line of JSON in, a line of JSON out."""

    def __init__(self, python: Path, script: str) -> None:
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            [str(python), str(HERE / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **one, "FLWR_TELEMETRY_ENABLED": "0"},
        )

    def measure(self, **request: Any) -> dict[str, Any]:
        if self.process.stdin is None or self.process.stdout is None:
            raise SystemExit("a worker has no pipes")
        print(json.dumps(request), file=self.process.stdin, flush=True)
        if not (line := self.process.stdout.readline()):
            raise SystemExit(f"a worker ended with {self.process.wait()} at {request}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def flower_python() -> Path:
    """The interpreter that has Flower, installed as far as it is missing."""
    python = FLOWER / "bin" / "python"
    done = FLOWER / f"flwr-{FLOWER_VERSION}"
    if not done.exists():
        venv.create(FLOWER, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*command, f"flwr=={FLOWER_VERSION}"], check=False).returncode:
            raise SystemExit("Flower could not be installed; --without-flower measures the rest")
        done.touch()
    return python


def measure(cell: Cell, workers: dict[str, Worker]) -> dict[str, Any]:
    """The cell's runs, as far as they are missing, and its memory."""
    found: dict[str, Any] = {"cell": asdict(cell), "runs": [], "memory": {}}
    if cell.path.exists():
        found = {**json.loads(cell.path.read_text(encoding="utf-8")), "cell": asdict(cell)}
    session = {
        "nodes": cell.nodes, "elements": cell.elements, "dropped": cell.dropped, "threshold": cell.threshold,
    }  # fmt: skip
    kinds: list[tuple[str, str, dict[str, Any]]] = []
    for ring in (32, 64):
        bare = {"ring": ring, "nodes": cell.nodes, "elements": cell.elements}
        kinds += [
            (f"keystream{ring}", "ours", {"what": "keystream", **bare}),
            (f"masks{ring}", "ours", {"what": "masks", **bare}),
            (f"ours{ring}", "ours", {"what": "session", "ring": ring, **session}),
        ]
    if "flower" in workers:
        kinds.insert(3, ("flower", "flower", session))
    for number in range(len(found["runs"]), cell.repeats):
        turned = [kind for kind in kinds if kind[0] != "flower" or number < cell.flower_repeats]
        turned = turned if number % 2 else turned[::-1]
        run = {kind: workers[worker].measure(**request, memory=False) for kind, worker, request in turned}
        found["runs"].append(run)
        _save(cell, found)
    for kind, worker, request in kinds:
        if kind.startswith(("ours", "flower")) and kind not in found["memory"]:
            found["memory"][kind] = workers[worker].measure(**request, memory=True)
            _save(cell, found)
    return found


def _save(cell: Cell, found: dict[str, Any]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    part = cell.path.with_suffix(".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(cell.path)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small cells and few repeats")
    parser.add_argument("--without-flower", action="store_true", help="ours and the keystream alone")
    parser.add_argument("--nodes", type=int, nargs="+", help="only cells of so many nodes")
    parser.add_argument("--values", type=int, nargs="+", help="only cells of so many values")
    parser.add_argument("--fresh", action="store_true", help="measure again what is finished")
    parser.add_argument("--plot", type=Path, default=OUT / "cost.svg")
    arguments = parser.parse_args()
    due = [
        cell for cell in cells(arguments.quick)
        if cell.nodes in (arguments.nodes or [cell.nodes]) and cell.elements in (arguments.values or [cell.elements])
    ]  # fmt: skip
    whole = not (arguments.nodes or arguments.values)
    workers = {"ours": Worker(Path(sys.executable), "secagg_ours.py")}
    if not arguments.without_flower:
        workers["flower"] = Worker(flower_python(), "secagg_flower.py")
    results = []
    for cell in due:
        if arguments.fresh:
            cell.path.unlink(missing_ok=True)
        print(f"{cell.nodes} nodes, {cell.elements:,} values, {cell.dropped} dropped", file=sys.stderr, flush=True)
        results.append(measure(cell, workers))
    text = tables(results)
    (OUT / ("table.md" if whole else "part.md")).write_text(text, encoding="utf-8")
    if whole:
        plot(results, arguments.plot)
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
