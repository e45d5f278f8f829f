"""What a sweep over settings says, in words: which of them give people away, most and least, and so what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedsecure_attacks.report.figure import Report
from fedsecure_attacks.report.findings import accepted, per_hundred

__all__ = ["settings_found", "settings_to_do"]

Cell = Mapping[str, Any]
_STARTS = {"noise": "pure noise", "avg": "averages of a few records", "real": "records themselves"}
#: Kinds in a sentence, at most; the tables have all.
_MOST_KINDS = 8


def settings_found(report: Report) -> tuple[str, ...]:
    """How many settings leak, by what images start from and by noise; and, where one does, under which most is given
    away, and least. Nothing for fewer than two settings."""
    cells = report.get("sweep", [])
    if len(cells) < 2:
        return ()
    leaking = any(cell["verdict"] == "LEAK" for cell in cells)
    return (*_by_kind(cells, report), *(_extremes(cells, report) if leaking else ()))


def settings_to_do(report: Report) -> tuple[str, ...]:
    """Steps after a LEAK of a way of making sets, most urgent first."""
    cells = report.get("sweep", [])
    leaking = [cell for cell in cells if cell["verdict"] == "LEAK"]
    others = [cell for cell in cells if cell["verdict"] != "LEAK"]
    if others:
        first = "Release no set, and send nothing in a run, with a setting that leaks; the tables behind name them all."
    else:
        first = (
            "Release no set, and send nothing in a run, that is made in this way: every setting that was tried leaks."
        )
    steps = [
        first,
        "If such sets have left already, others hold them: treat that as a disclosure of personal data, and "
        "tell whoever answers for data protection.",
        "Use differential privacy: noise that is added on purpose is the one thing that bounds every attack. More "
        "records in each class and fewer steps make sets tell less, and promise nothing.",
    ]
    if any(cell["init"] in {"avg", "real"} for cell in leaking):
        steps.append(
            "Never start images from records or averages of a few: these are people, or nearly. Starting from pure "
            "noise protects nobody by itself."
        )
    return tuple(steps)


def _by_kind(cells: Iterable[Cell], report: Report) -> tuple[str, ...]:
    """By start and noise: how many of its settings leak."""
    kinds: dict[str, list[str]] = {}
    for cell in cells:
        kinds.setdefault(_kind(cell), []).append(cell["verdict"])
    limits = accepted(report)
    limit = f"{per_hundred(limits['tpr'])} of 100 members picked out, {per_hundred(limits['fpr'])} of 100 others"
    more = f"more than was accepted beforehand ({limit})"
    if len(kinds) == 1:
        verdicts = next(iter(kinds.values()))
        return (f"Of {len(verdicts)} settings that were tried, {_so_many(verdicts)} {more}.",)
    said = [f"{name}: {_leaks(verdicts)} of {len(verdicts)}" for name, verdicts in list(kinds.items())[:_MOST_KINDS]]
    left = f"; and {len(kinds) - len(said)} more kinds" if len(kinds) > len(said) else ""
    every = [verdict for verdicts in kinds.values() for verdict in verdicts]
    return (f"Settings that give away {more}, by what images start from: {'; '.join(said)}{left}.{_rest(every)}",)


def _rest(verdicts: list[str]) -> str:
    clear, rest = verdicts.count("NO-LEAK-DETECTED"), len(verdicts) - _leaks(verdicts)
    if not rest:
        return ""
    left = "is" if rest - clear == 1 else "are"
    return f" Of the other {rest}, {clear} showed no leak and {rest - clear} {left} left open, which is no clearance."


def _leaks(verdicts: list[str]) -> int:
    return verdicts.count("LEAK")


def _so_many(verdicts: list[str]) -> str:
    count = _leaks(verdicts)
    if not count:
        return "none gives away"
    return "all give away" if count == len(verdicts) else f"{count} {'gives' if count == 1 else 'give'} away"


def _kind(cell: Cell) -> str:
    noise = f" with noise added for privacy, σ = {cell['sigma']:g}" if cell.get("sigma") else ""
    return f"from {_STARTS.get(cell['init'], cell['init'])}{noise}"


def _words(cell: Cell) -> str:
    images = "1 image" if cell["ipc"] == 1 else f"{cell['ipc']} images"
    matched = " (matched as closely as others)" if cell["curve"] == "matched residual" else ""
    return f"{images} a class {_kind(cell)}{matched}"


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
