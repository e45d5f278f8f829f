"""The verdict on each cell and on all together. Fixed beforehand: the combined attack is primary, over all cells
(Holm); every other attack shares an error of its own over attacks and cells, and so do the tails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsecure_attacks.mechanism.measures import AttackOnMechanism, area_p, over_rate_p
from fedsecure_attacks.mechanism.scoring import PRIMARY
from fedsecure_attacks.mechanism.sweep import Finished
from fedsecure_attacks.statistics.multiplicity import holm
from fedsecure_attacks.statistics.roc import Rate
from fedsecure_attacks.verdict import CELL_ALPHA, TAIL_ALPHA, Control, Thresholds, Verdict, Word

__all__ = ["Judged", "direction", "judge"]

#: (cell, attack, what of it).
Key = tuple[int, str, str]


@dataclass(frozen=True)
class Judged:
    """``overall``, and of each cell; ``adjusted``: p of (cell, attack, "area" | "rate" | "tail"). ``worst``: the cell
    that tells most."""

    overall: Verdict
    cells: tuple[Verdict, ...]
    adjusted: Mapping[Key, float]
    worst: int


def judge(cells: Sequence[Finished], thresholds: Thresholds, controls: Sequence[Control]) -> Judged:
    """``controls``: of the whole audit; the cells have their own."""
    adjusted = _adjusted(cells, thresholds)
    verdicts = tuple(_cell(i, one, thresholds, adjusted) for i, one in enumerate(cells))
    worst = max(range(len(cells)), key=lambda i: _size(verdicts[i], cells[i]))
    return Judged(_overall(cells, verdicts, controls, worst), verdicts, adjusted, worst)


def direction(one: Finished) -> Control:
    """Whether no attack is read the wrong way round: members never score below others for certain."""
    wrong = [n for n, a in one.result.attacks.items() if a.direction is not None and a.direction.high < 0.5]
    if wrong:
        return Control(
            "direction", False, f"members score below others under {', '.join(wrong)}, which no leak explains"
        )
    return Control("direction", True, "no attack ranks members below others")


def _adjusted(cells: Sequence[Finished], thresholds: Thresholds) -> dict[Key, float]:
    primary: dict[Key, float] = {}
    others: dict[Key, float] = {}
    tails: dict[Key, float] = {}
    for i, one in enumerate(cells):
        for name, attack in one.result.attacks.items():
            family = primary if name == PRIMARY else others
            family[i, name, "area"] = area_p(attack, thresholds)
            family[i, name, "rate"] = over_rate_p(attack, thresholds)
            tails[i, name, "tail"] = attack.tail.p
    found: dict[Key, float] = {}
    for family in (primary, others, tails):
        names = {"/".join(map(str, key)): key for key in family}
        found |= {names[text]: p for text, p in holm({text: family[key] for text, key in names.items()}).items()}
    return found


def _cell(index: int, one: Finished, thresholds: Thresholds, adjusted: Mapping[Key, float]) -> Verdict:
    attacks = one.result.attacks
    failed = [c for c in (*one.result.controls, direction(one)) if not c.passed]
    if failed:
        return Verdict(Word.INVALID, "; ".join(f"control {c.name}: {c.said}" for c in failed))
    if one.result.copies:
        return Verdict(Word.LEAK, f"{one.result.copies} of {one.result.members} members were released bit for bit")
    for name in sorted(attacks, key=lambda name: name != PRIMARY):
        if said := _leak(index, name, attacks[name], thresholds, adjusted):
            return Verdict(Word.LEAK, said)
    primary = attacks[PRIMARY]
    if primary.tpr_interval is None or not isinstance(primary.tpr, Rate):
        why = "its rate is not measurable" if isinstance(primary.tpr, Rate) else primary.tpr.why
        return Verdict(Word.INCONCLUSIVE, f"{PRIMARY}: {why}")
    if primary.tpr_interval.high > thresholds.tpr:
        return Verdict(
            Word.INCONCLUSIVE,
            f"{PRIMARY}: the rate at {thresholds.fpr:g} may be up to {primary.tpr_interval.high:.3f} "
            f"(accepted: {thresholds.tpr:g})",
        )
    for name, attack in attacks.items():
        if attack.interval is None or attack.interval.high > thresholds.auc:
            most = 1.0 if attack.interval is None else attack.interval.high
            return Verdict(
                Word.INCONCLUSIVE,
                f"{name}: the area under the curve may be up to {most:.3f} (accepted: {thresholds.auc:g})",
            )
    areas = max(a.interval.high for a in attacks.values() if a.interval is not None)
    return Verdict(
        Word.NO_LEAK_DETECTED,
        f"power: a rate above {primary.tpr_interval.high:.3f} at {thresholds.fpr:g}, or an area above {areas:.3f}, "
        "would have been seen",
    )


def _leak(
    index: int, name: str, attack: AttackOnMechanism, thresholds: Thresholds, adjusted: Mapping[Key, float]
) -> str | None:
    if adjusted[index, name, "rate"] < CELL_ALPHA and isinstance(attack.tpr, Rate) and attack.tpr_interval is not None:
        return (
            f"{name}: {attack.tpr.count} of {attack.tpr.of} members are told at a false-positive rate of "
            f"{thresholds.fpr:g}, a share of {attack.tpr.value:.3f} (accepted: {thresholds.tpr:g})"
        )
    if adjusted[index, name, "area"] < CELL_ALPHA and attack.interval is not None:
        return (
            f"{name}: area under the curve {attack.auc:.3f}, {attack.interval.low:.3f} to {attack.interval.high:.3f} "
            f"over {attack.clusters} condensations of classes (accepted: {thresholds.auc:g})"
        )
    if adjusted[index, name, "tail"] < TAIL_ALPHA:
        return (
            f"{name}: {attack.tail.count} members of one shadow score above all {attack.tail.nonmembers} others "
            f"(p = {adjusted[index, name, 'tail']:.1e}, adjusted)"
        )
    return None


def _size(verdict: Verdict, one: Finished) -> tuple[bool, float, float]:
    primary = one.result.attacks[PRIMARY]
    rate = primary.tpr.value if isinstance(primary.tpr, Rate) else 0.0
    return verdict.word is Word.LEAK, rate, primary.auc


def _overall(
    cells: Sequence[Finished], verdicts: Sequence[Verdict], controls: Sequence[Control], worst: int
) -> Verdict:
    if failed := [c for c in controls if not c.passed]:
        return Verdict(Word.INVALID, "; ".join(f"control {c.name}: {c.said}" for c in failed))
    by_word = {word: [i for i, v in enumerate(verdicts) if v.word is word] for word in Word}
    if wrong := by_word[Word.INVALID]:
        first = wrong[0]
        return Verdict(
            Word.INVALID,
            f"{len(wrong)} of {len(cells)} cells; the first, {cells[first].cell.words}: {verdicts[first].reason}",
        )
    if leaks := by_word[Word.LEAK]:
        many = f"{len(leaks)} of {len(cells)} cells leak" if len(cells) > 1 else "it leaks"
        return Verdict(Word.LEAK, f"{many}; most of all {cells[worst].cell.words}: {verdicts[worst].reason}")
    if unsure := by_word[Word.INCONCLUSIVE]:
        first = unsure[0]
        return Verdict(
            Word.INCONCLUSIVE,
            f"{len(unsure)} of {len(cells)} cells; the first, {cells[first].cell.words}: {verdicts[first].reason}",
        )
    return Verdict(Word.NO_LEAK_DETECTED, f"in none of {len(cells)} cells; {verdicts[worst].reason}")
