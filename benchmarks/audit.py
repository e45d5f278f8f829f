"""Membership in condensed data against images per class, on Fashion-MNIST with FedAF's real loop: SWD, resampling, warm
start over rounds, and the attacks of a coordinator that sees every round.

Sweeps, each a part of one table: by images per class as deployed and at matched residual; by what images start from; by
noise; by rounds. A cell is five random halves of a thousand people, each a federated run among three nodes of CPU size,
and one run of other people. Shadows and cells are kept in ``benchmarks/out/audit/cache``, one file each: a benchmark
that was cut short goes on, and one that is finished is only read. ``table.md`` and the figures are written after every
sweep.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedsecure.commands.output import note
from fedsecure_attacks.cli.terminal import watching
from fedsecure_attacks.mechanism.command import people_of
from fedsecure_attacks.mechanism.reporting import MechanismAudit, mechanism_report
from fedsecure_attacks.mechanism.scoring import IMAGES_ONLY, PRIMARY
from fedsecure_attacks.mechanism.sweep import Finished, ceiling, run_sweep
from fedsecure_attacks.mechanism.sweepfile import SweepSettings, merged
from fedsecure_attacks.report.render import write_html
from fedsecure_attacks.report.sweep import sweep_figures
from fedsecure_attacks.strictjson import dump

OUT = Path(__file__).resolve().parent / "out" / "audit"
IPCS = [1, 5, 10, 20, 50]
#: Of every cell: CPU size.
COMMON: dict[str, Any] = {
    "seed": 0, "shadows": 5, "strangers": 1, "networks": 4, "models": False,
    "data": {"name": "fashion-mnist", "pool_size": 1000, "population_size": 2000, "test_size": 2000},
    "condensation": {"steps": 40, "interval": 20, "width": 8, "init_n": 10},
    "federated": {"nodes": 3, "server_steps": 100},
}  # fmt: skip
#: sweep -> what it varies.
GRIDS: dict[str, dict[str, Any]] = {
    "images": {"ipc": IPCS, "curves": ["as deployed"]},
    "start": {"ipc": [10, 50], "init": ["avg", "real"], "curves": ["as deployed"]},
    "noise": {"ipc": [10, 50], "sigma": [1.0], "curves": ["as deployed"]},
    "rounds": {"ipc": [10], "rounds": [1], "curves": ["as deployed"]},
    "matched": {"ipc": IPCS, "curves": ["as deployed", "matched residual"]},
}
#: The attacks that have a column.
COLUMNS = (
    "combined", "combined-images", "mean-tracing", "mean-tracing-references", "mean-tracing-rounds-references",
    "mean-logits", "mean-logits-pool", "nearest-neighbour-calibrated", "nearest-neighbour-pixels", "image-likelihood",
)  # fmt: skip


def settings(grid: dict[str, Any], arguments: argparse.Namespace) -> SweepSettings:
    """A sweep's settings; those of a try are as small as can be."""
    raw = {**COMMON, "grid": {"rounds": [arguments.rounds], **grid}}
    if arguments.quick:
        raw |= {"shadows": 4, "networks": 1, "condensation": {"steps": 4, "interval": 2, "width": 4}}
        raw |= {"data": {**COMMON["data"], "pool_size": 200, "population_size": 400, "test_size": 100}}
        raw |= {"federated": {"nodes": 3, "server_steps": 4}}
        raw["grid"] = {**raw["grid"], "ipc": [min(2, ipc) for ipc in raw["grid"]["ipc"]][-1:], "rounds": [1]}
    return merged(raw, {"shadows": arguments.shadows}, "benchmark")


def table(cells: list[Finished], report: dict[str, Any]) -> str:
    """Markdown: a row for each cell; areas with the half of their 95 % interval, over clusters; the combined attack's
    rate at a false-positive rate of 0.01."""
    head = ["start", "IPC", "rounds", "noise", "curve", "steps", "residual", "accuracy", "TPR", *COLUMNS, "verdict"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for one, raw in zip(cells, report["sweep"], strict=True):
        setting, rate = one.cell.setting, raw["attacks"]["combined"]
        row = [setting.init, str(setting.ipc), str(one.cell.rounds), f"{setting.sigma:g}", one.cell.curve]
        row += [f"{one.result.steps:.0f}", f"{one.result.residual:.2f}"]
        row += ["–" if one.result.accuracy is None else f"{one.result.accuracy:.3f}"]
        share = rate["tpr_at_fpr_0.01"]
        row += ["–" if share is None else f"{share:.3f} ({rate['low_tpr']:.3f} to {rate['high_tpr']:.3f})"]
        row += [_area(raw["attacks"].get(name)) for name in COLUMNS]
        lines.append("| " + " | ".join([*row, raw["verdict"]]) + " |")
    exact = ", ".join(f"{name} {attack['auc']:.3f}" for name, attack in _ceiling(report).items())
    return "\n".join([*lines, "", f"Exact class means (the ceiling under the same networks): {exact}.", ""])


def _area(attack: dict[str, Any] | None) -> str:
    if attack is None:
        return "–"
    half = "" if attack["low"] is None else f" ± {(attack['high'] - attack['low']) / 2:.3f}"
    return f"{attack['auc']:.3f}{half}"


def _ceiling(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = report["ceiling"]
    return found


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", nargs="+", choices=list(GRIDS), default=list(GRIDS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shadows", type=int, help="random halves of each cell")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a try: tiny networks, one cell a sweep")
    arguments = parser.parse_args()
    out = OUT / "quick" if arguments.quick else OUT
    done: dict[object, Finished] = {}
    for name in arguments.sweeps:
        sweep = settings(GRIDS[name], arguments)
        note(f"sweep {name}")
        people = people_of(sweep)
        exact = ceiling(sweep, people, out / "cache")
        with watching(quiet=False) as watch:
            for one in run_sweep(sweep, people, out / "cache", jobs=arguments.jobs, watch=watch):
                done.setdefault((one.cell.curve, one.cell.setting), one)
        cells = list(done.values())
        audit = MechanismAudit(sweep, people, cells, exact)
        report = mechanism_report(audit)
        report["ceiling"] = {key: {"auc": attack.auc} for key, attack in exact.attacks.items()}
        (out / "report.json").write_text(dump(report), encoding="utf-8")
        (out / "table.md").write_text(table(cells, report), encoding="utf-8")
        for primary, prefix in ((PRIMARY, ""), (IMAGES_ONLY, "images-")):
            for figure in sweep_figures({**report, "primary": primary}):
                (out / f"{prefix}{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
        write_html(report, out / "report.html")
    print((out / "table.md").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
