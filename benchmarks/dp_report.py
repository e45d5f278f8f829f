"""The table and the plot of ``dp.py``, from its cells' results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["plot", "table"]

#: (method, epsilon or ``None``, plan, ``result.json``).
Result = tuple[str, float | None, dict[str, Any], dict[str, Any]]
NAMES = {
    "fedaf-a": "FedAF, Mechanism A",
    "fedaf-b": "FedAF, Mechanism B",
    "fedspm": "FedSPM, C = 2",
    "feddrm": "FedDRM",
    "fedavg": "FedAvg",
}


def accuracy(result: dict[str, Any]) -> float:
    """Of the whole system where queries are routed, else of the one model."""
    return float(result.get("final_system_accuracy", result["final_accuracy"]))


def _grouped(results: Sequence[Result]) -> dict[tuple[str, float | None], list[Result]]:
    found: dict[tuple[str, float | None], list[Result]] = {}
    for result in results:
        found.setdefault((result[0], result[1]), []).append(result)
    return found


def _at(epsilon: float | None) -> str:
    return "none" if epsilon is None else f"{epsilon:g}"


def _spread(values: Sequence[float]) -> str:
    """Mean, and least to most where there are several."""
    if not values:
        return "not run"
    mean = f"{sum(values) / len(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.1f} to {max(values):.1f})"


def table(results: Sequence[Result]) -> str:
    """Markdown: a row for each method and epsilon, a column for each seed: its mean over draws of noise, the least and
    the most. ``paid``: the most that a node did, by the run's own account."""
    seeds = sorted({plan["seed"] for _, _, plan, _ in results})
    head = ["method", "epsilon", "paid", "sigma", *(f"seed {seed}" for seed in seeds), "draws", "seconds a run"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (method, epsilon), found in _grouped(results).items():
        sigmas = sorted({plan["privacy"]["sigma"] for _, _, plan, _ in found if "privacy" in plan})
        paid = [p["epsilon"] for *_, result in found for p in result.get("privacy", {}).values()]
        seconds = sum(sum(r["seconds"] for r in result["rounds"]) for *_, result in found) / len(found)
        row = [NAMES[method], _at(epsilon), f"{max(paid):.3g}" if paid else "–"]
        row += [" to ".join(f"{s:.3g}" for s in dict.fromkeys((sigmas[0], sigmas[-1]))) if sigmas else "–"]
        by_seed = [[100 * accuracy(r) for _, _, plan, r in found if plan["seed"] == seed] for seed in seeds]
        row += [*map(_spread, by_seed), str(max(map(len, by_seed))), f"{seconds:.0f}"]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def plot(results: Sequence[Result], path: Path) -> None:
    """Two panels, FedAF's and that of the others: mean accuracy against epsilon, each run a dot."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "dp", "font.size": 9})
    from matplotlib import pyplot as plt

    grouped = _grouped(results)
    private = sorted({epsilon for _, epsilon in grouped if epsilon is not None})
    steps: list[float | None] = [*private, *([None] if any(epsilon is None for _, epsilon in grouped) else [])]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for index, (method, label) in enumerate(NAMES.items()):
        axis = axes[0] if method.startswith("fedaf") else axes[1]
        points = [(x, 100 * accuracy(r)) for x, e in enumerate(steps) for *_, r in grouped.get((method, e), [])]
        if points:
            means = {x: [y for at, y in points if at == x] for x in sorted({x for x, _ in points})}
            axis.plot(list(means), [sum(ys) / len(ys) for ys in means.values()], color=f"C{index}", label=label)
            axis.plot(*zip(*points, strict=True), "o", markersize=4, color=f"C{index}")
    axes[0].set(title="Label skew, 28x28", ylabel="accuracy (%)")
    axes[1].set(title="Dual heterogeneity, 16x16")
    for axis in axes:
        axis.set_xticks(range(len(steps)), [_at(epsilon) for epsilon in steps])
        axis.set_xlabel("epsilon of each node's whole run")
        axis.grid(visible=True, alpha=0.3)
        if axis.lines:
            axis.legend(loc="lower right", frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
