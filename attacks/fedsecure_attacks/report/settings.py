"""What a sweep over settings says, in words: which of them give people away, most and least, and so what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedsecure_attacks.report.figure import Report
from fedsecure_attacks.report.findings import accepted, per_hundred

__all__ = ["settings_found", "settings_to_do"]

Cell = Mapping[str, Any]
_STARTS = {"noise": "noise", "avg": "averages of a few records", "real": "records themselves"}
#: Kinds in a sentence, at most; the tables have all.
_MOST_KINDS = 8


def settings_found(report: Report) -> tuple[str, ...]:
    """How many settings leak, by what images start from and by noise; and where most and least is given away. Nothing
    for fewer than two settings."""
    cells = report.get("sweep", [])
    if len(cells) < 2:
        return ()
    return (*_by_kind(cells), *_extremes(cells, report))


def settings_to_do(report: Report) -> tuple[str, ...]:
    """Steps after a LEAK of a way of making sets, most urgent first."""
    cells = report.get("sweep", [])
    leaking = [cell for cell in cells if cell["verdict"] == "LEAK"]
    others = [cell for cell in cells if cell["verdict"] != "LEAK"]
    if others:
        first = "Do not release sets that are made with a setting that leaks; the list above and the tables say which."
    else:
        first = "Release no set that is made in this way: every setting that was tried leaks."
    steps = [
        first,
        "If such sets have left already, the coordinator has them: treat that as a disclosure of personal data, and "
        "tell whoever answers for data protection.",
        "Use differential privacy: noise is the one thing that bounds every attack. More records in each class and "
        "fewer steps make sets tell less, and promise nothing.",
    ]
    if any(cell["init"] in {"avg", "real"} for cell in leaking):
        steps.append("Start images from noise, never from records or averages of a few: these are people, or nearly.")
    return tuple(steps)


def _by_kind(cells: Iterable[Cell]) -> tuple[str, ...]:
    """By start and noise: how many of its settings leak."""
    kinds: dict[str, list[bool]] = {}
    for cell in cells:
        kinds.setdefault(_kind(cell), []).append(cell["verdict"] == "LEAK")
    if len(kinds) == 1:
        leaks = next(iter(kinds.values()))
        return (f"Of {len(leaks)} settings that were tried, {_so_many(leaks)} more than was accepted.",)
    said = [f"{name}: {sum(leaks)} of {len(leaks)}" for name, leaks in list(kinds.items())[:_MOST_KINDS]]
    more = len(kinds) - len(said)
    return (
        f"Settings that give away more than was accepted, by what images start from: {'; '.join(said)}"
        f"{f'; and {more} more kinds' if more > 0 else ''}. The others showed no leak, or left it open.",
    )


def _so_many(leaks: list[bool]) -> str:
    count = sum(leaks)
    return "all give away" if count == len(leaks) else f"{count} {'gives' if count == 1 else 'give'} away"


def _kind(cell: Cell) -> str:
    noise = f" with privacy noise σ = {cell['sigma']:g}" if cell.get("sigma") else ""
    return f"from {_STARTS.get(cell['init'], cell['init'])}{noise}"


def _words(cell: Cell) -> str:
    images = "1 image" if cell["ipc"] == 1 else f"{cell['ipc']} images"
    return f"{images} a class {_kind(cell)} ({cell['curve']})"


def _extremes(cells: Iterable[Cell], report: Report) -> tuple[str, ...]:
    """By rates, where all are measurable, as the audit's reason ranks them; else by areas."""
    primary, fpr = report["primary"], accepted(report)["fpr"]
    attacks = [(cell, cell["attacks"].get(primary, {})) for cell in cells]
    rated = [(cell, a.get(f"tpr_at_fpr_{fpr:g}")) for cell, a in attacks]
    if all(rate is not None for _, rate in rated):
        (least, low), (most, high) = _ends(rated)
        return (
            f"Most under {_words(most)}: {per_hundred(high)} of 100 members are picked out, while {per_hundred(fpr)} "
            f"of 100 others is wrongly picked. Least under {_words(least)}: {per_hundred(low)} of 100.",
        )
    areas = [(cell, a["auc"]) for cell, a in attacks if a.get("auc") is not None]
    if len(areas) < 2:
        return ()
    (least, low), (most, high) = _ends(areas)
    return (
        f"Most under {_words(most)}: a member scores above somebody else in {per_hundred(high)} pairs of 100. Least "
        f"under {_words(least)}: {per_hundred(low)} of 100, where 50 is chance.",
    )


def _ends(values: list[tuple[Cell, Any]]) -> tuple[tuple[Cell, float], tuple[Cell, float]]:
    ordered = sorted(values, key=lambda item: float(item[1]))
    return ordered[0], ordered[-1]
