"""Tables and the plot of ``secagg.py``, from its cells' runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["plot", "tables"]

Result = dict[str, Any]
Read = Callable[[dict[str, Any]], float]
KINDS = ("ours32", "ours64", "flower")


def _figure(kind: str, part: str) -> Read:
    """Reads one figure of what one kind of measurement gave."""
    return lambda run: float(run[kind][part])


def _masking(ring: int) -> Read:
    """Reads the seconds of one node from float32 tensors to signed chunks."""
    return lambda run: float(run[f"ours{ring}"]["quantise"] + run[f"ours{ring}"]["mask"])


def _coordinator(kind: str) -> Read:
    """Reads the coordinator's seconds in all."""
    return lambda run: float(sum(run[kind][part] for part in ("add", "unmask", "other")))


def _median(result: Result, read: Read) -> float | None:
    """Over the runs that have the figure."""
    values = _values(result, read)
    return statistics.median(values) if values else None


def _values(result: Result, read: Read) -> list[float]:
    found = []
    for run in result["runs"]:
        try:
            found.append(read(run))
        except KeyError:
            continue
    return found


def _ms(result: Result, read: Read) -> str:
    value = _median(result, read)
    return "–" if value is None else f"{1000 * value:,.3g}" if value < 1 else f"{1000 * value:,.0f}"


def _ratio(result: Result, over: Read, under: Read) -> str:
    """The median and the range of the runs' own ratios."""
    values = _values(result, lambda run: over(run) / under(run))
    if not values:
        return "–"
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def _megabytes(size: float | None) -> str:
    return "–" if size is None else f"{size / 1e6:.3g}"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def tables(results: Sequence[Result]) -> str:
    """Markdown: a node's processor time, the coordinator's, then bytes and memory."""
    whole = [result for result in results if not result["cell"]["dropped"]]
    return "\n".join((_node_table(whole), _share_table(whole), _coordinator_table(results), _memory_table(results)))


def _size(result: Result) -> list[str]:
    return [str(result["cell"]["nodes"]), f"{result['cell']['elements']:,}"]


def _node_table(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        for ring in (32, 64):
            bare, masks = _figure(f"keystream{ring}", "seconds"), _figure(f"masks{ring}", "seconds")
            path, theirs = _masking(ring), _figure("flower", "mask")
            rows.append([
                *_size(result), str(ring), _ms(result, bare), _ms(result, masks), _ratio(result, masks, bare),
                _ms(result, path), _ratio(result, path, bare), _ms(result, theirs), _ratio(result, theirs, path),
            ])  # fmt: skip
    head = [
        "nodes", "values", "ring", "keystream", "masks", "masks / keystream",
        "masking", "masking / keystream", "Flower", "Flower / ours",
    ]  # fmt: skip
    return _markdown(head, rows)


def _share_table(results: Sequence[Result]) -> str:
    """Keys, shares, signatures: they do not depend on the vector, so the smallest tells most."""
    ours, theirs = _figure("ours32", "shares"), _figure("flower", "shares")
    first = {result["cell"]["nodes"]: result for result in reversed(results)}
    rows = [
        [str(nodes), _ms(result, ours), _ms(result, theirs), _ratio(result, theirs, ours)]
        for nodes, result in sorted(first.items())
    ]
    return _markdown(["nodes", "ours", "Flower", "Flower / ours"], rows)


def _coordinator_table(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        row = [*_size(result), str(result["cell"]["dropped"])]
        row += [_ms(result, _figure(kind, part)) for kind in KINDS for part in ("add", "unmask")]
        row += [_ratio(result, _coordinator("flower"), _coordinator(kind)) for kind in KINDS[:2]]
        rows.append(row)
    head = [
        "nodes", "values", "dropped", "add, 32", "unmask, 32", "add, 64", "unmask, 64",
        "Flower add", "Flower unmask", "Flower / ours, 32", "Flower / ours, 64",
    ]  # fmt: skip
    return _markdown(head, rows)


def _memory_table(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        if memory := result["memory"]:
            row = [*_size(result), str(result["cell"]["dropped"])]
            for figure in ("bytes_up", "node_peak", "coordinator_peak"):
                row.append(" / ".join(_megabytes(memory.get(kind, {}).get(figure)) for kind in KINDS))
            rows.append(row)
    return _markdown(["nodes", "values", "dropped", "up from a node", "node's peak", "coordinator's peak"], rows)


def plot(results: Sequence[Result], path: Path) -> None:
    """Three panels, both axes logarithmic: a node's cost against values and nodes, the coordinator's against nodes."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "secagg", "font.size": 9})
    from matplotlib import pyplot as plt

    node: list[tuple[str, Read]] = [
        ("Flower SecAgg+", _figure("flower", "mask")),
        ("ours, 64-bit ring", _masking(64)),
        ("ours, 32-bit ring", _masking(32)),
        ("AES-256-CTR alone, 32-bit ring", _figure("keystream32", "seconds")),
    ]
    centre: list[tuple[str, Read]] = [
        ("Flower SecAgg+", _coordinator("flower")),
        ("ours, 64-bit ring", _coordinator("ours64")),
        ("ours, 32-bit ring", _coordinator("ours32")),
    ]
    whole = [result for result in results if not result["cell"]["dropped"]]
    sizes = {n: [r["cell"]["elements"] for r in whole if r["cell"]["nodes"] == n] for n in (10, 50)}
    common = max(d for d in sizes[50] if d <= 10**6)
    most = {r["cell"]["nodes"]: r for r in results if r["cell"]["elements"] == common}  # the last drops most
    at_ten = [r for r in whole if r["cell"]["nodes"] == 10]
    at_common = [r for r in whole if r["cell"]["elements"] == common]
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2))
    _panel(axes[0], at_ten, "elements", node, "One node's masking, 10 nodes", "values")
    _panel(axes[1], at_common, "nodes", node, f"One node's masking, {common:,} values", "nodes")
    _panel(axes[2], at_common, "nodes", centre, f"Coordinator, {common:,} values", "nodes (dashed: N - t drop out)")
    _lines(axes[2], [most[n] for n in sorted(most)], "nodes", centre, dashed=True)
    axes[0].set_ylabel("processor time (ms)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(axis: Any, results: Sequence[Result], key: str, lines: Sequence[tuple[str, Read]], *words: str) -> None:
    _lines(axis, results, key, lines, dashed=False)
    axis.set(title=words[0], xlabel=words[1], xscale="log", yscale="log")
    if key == "nodes":
        axis.set_xticks([3, 10, 50], ["3", "10", "50"])
        axis.minorticks_off()
    axis.grid(visible=True, alpha=0.3)


def _lines(axis: Any, results: Sequence[Result], key: str, lines: Sequence[tuple[str, Read]], *, dashed: bool) -> None:
    for index, (label, read) in enumerate(lines):
        points = [(result["cell"][key], _median(result, read)) for result in results]
        shown = sorted((x, 1000 * y) for x, y in points if y is not None)
        style = "--" if dashed else "-"
        if shown:
            axis.plot(*zip(*shown, strict=True), style, marker="o", markersize=4, color=f"C{index}", label=label)
