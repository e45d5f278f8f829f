"""What an audit says at its end: one word, one reason, one exit code. The word "safe" is not among them.

A leak can be said from any number of people. That none was found can be said only with enough of them, when every
control did what it must, and with the power that the audit had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from fedsecure.errors import ConfigError
from fedsecure_attacks.statistics.intervals import Interval
from fedsecure_attacks.statistics.multiplicity import holm
from fedsecure_attacks.statistics.roc import NotMeasurable, Rate
from fedsecure_attacks.statistics.tail import TailTest

__all__ = ["AttackResult", "Control", "Thresholds", "Verdict", "Word", "decide", "decide_accounting", "said_of_copies"]

#: A tail test speaks when its p, adjusted for all attacks of the audit, is below this.
TAIL_ALPHA = 1e-3
#: A rate speaks when its exact p, adjusted in the same way, is below this; areas have as much of the error. So no more
#: than one audit in twenty calls a leak where there is none.
RATE_ALPHA = 0.024
#: Of a sweep: the error of the primary attack over all cells, and that of all others together.
CELL_ALPHA = 0.025
#: An interval that lies below one half at this confidence means that a score was read the wrong way round.
DIRECTION_CONFIDENCE = 0.9999


class Word(Enum):
    """The verdicts, with their exit codes."""

    LEAK = "LEAK"
    CONTRADICTS_ACCOUNTING = "CONTRADICTS-ACCOUNTING"
    NO_LEAK_DETECTED = "NO-LEAK-DETECTED"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"

    @property
    def exit_code(self) -> int:
        """Of the process: 0 for no leak detected alone, and never 1, which is what a crash gives."""
        return _EXIT[self]


_EXIT = {
    Word.NO_LEAK_DETECTED: 0,
    Word.LEAK: 10,
    Word.INCONCLUSIVE: 11,
    Word.INVALID: 12,
    Word.CONTRADICTS_ACCOUNTING: 13,
}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the institution accepts: true-positive rate at a false-positive rate of ``fpr``, area under the curve, the
    share of candidates that may be in both pools, and the fewest members of a class of which anything is released."""

    tpr: float = 0.02
    auc: float = 0.55
    fpr: float = 0.01
    twins: float = 0.05
    n_min: int = 10

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for what no audit could keep: a rate that chance alone reaches, or no number."""
        if not 0 < self.fpr < self.tpr <= 1:
            raise ConfigError(
                f"an accepted true-positive rate of {self.tpr:g} at a false one of {self.fpr:g} (allowed: above "
                f"{self.fpr:g}, up to 1)",
                hint="by guessing, as many members as others are told: accept somewhat more, such as 0.02",
            )
        if not 0.5 <= self.auc <= 1:
            raise ConfigError(f"an accepted area under the curve of {self.auc:g} (allowed: 0.5 to 1)")


@dataclass(frozen=True)
class AttackResult:
    """One attack. ``auc`` and ``interval``, its own and the one that holds for all attacks together (``joint``);
    ``tpr``, with ``tpr_interval`` and ``rate_p`` (exact) when it is measurable; ``tail``; ``rate_adjusted`` and
    ``tail_adjusted``: p adjusted for all attacks. ``rates``: whether area and rate count for the verdict; a scan for
    copies is judged by its tail alone."""

    name: str
    auc: float
    interval: Interval
    joint: Interval
    direction: Interval
    tpr: Rate | NotMeasurable
    tpr_interval: Interval | None
    tail: TailTest
    tail_adjusted: float = 1.0
    rate_p: float | None = None
    rate_adjusted: float | None = None
    rates: bool = True
    tied: bool = False


@dataclass(frozen=True, slots=True)
class Control:
    """A question with a known answer, asked in every audit; ``said`` is what was found, in words."""

    name: str
    passed: bool
    said: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """``word`` and ``reason``, one sentence."""

    word: Word
    reason: str


def adjusted(results: Sequence[AttackResult]) -> tuple[AttackResult, ...]:
    """The results with the p of their tails, and of their rates, adjusted for each other (Holm)."""
    tails = holm({result.name: result.tail.p for result in results})
    rates = holm({r.name: r.rate_p for r in results if r.rates and r.rate_p is not None})
    return tuple(replace(r, tail_adjusted=tails[r.name], rate_adjusted=rates.get(r.name)) for r in results)


def decide(
    results: Sequence[AttackResult],
    controls: Sequence[Control],
    thresholds: Thresholds,
    *,
    primary: str,
    facts: Mapping[str, str],
    doubts: Sequence[str],
    copies: int,
    nearly: int = 0,
    contradictions: Sequence[str] = (),
) -> Verdict:
    """The verdict. ``primary``: the attack whose rate decides whether none was found, fixed before the run. ``facts``:
    leaks that follow by rule, name -> words. ``doubts``: why nothing can be concluded. ``copies``: members released
    bit for bit; ``nearly``: those and all that are in the set nearly as they are. A copy is a fact, whatever the
    controls say. ``contradictions``: in what more was shown than was accounted, which is worse than any leak that was
    accounted."""
    if copies or nearly:
        return Verdict(Word.LEAK, said_of_copies(copies, nearly))
    if failed := [control for control in controls if not control.passed]:
        return Verdict(Word.INVALID, "; ".join(f"control {c.name}: {c.said}" for c in failed))
    if wrong := [r for r in results if r.rates and r.direction.high < 0.5]:
        names = ", ".join(r.name for r in wrong)
        return Verdict(
            Word.INVALID, f"direction: members score below non-members under {names}, which no leak explains"
        )
    if contradictions:
        return Verdict(Word.CONTRADICTS_ACCOUNTING, "; ".join(contradictions))
    if facts:
        return Verdict(Word.LEAK, "; ".join(facts.values()))
    if leaks := [said for result in results for said in _leaks(result, thresholds)]:
        return Verdict(Word.LEAK, leaks[0])
    if doubts:
        return Verdict(Word.INCONCLUSIVE, "; ".join(doubts))
    if unsure := [said for result in results for said in _open(result, thresholds, result.name == primary)]:
        return Verdict(Word.INCONCLUSIVE, unsure[0])
    return Verdict(Word.NO_LEAK_DETECTED, _power(results, thresholds, primary))


def said_of_copies(exact: int, nearly: int) -> str:
    """The reason for a leak by ``exact`` members bit for bit, ``nearly`` of them in all as they are, or nearly."""
    count = max(exact, nearly)
    people = "1 member was" if count == 1 else f"{count} members were"
    if exact == count:
        return f"{people} released bit for bit"
    return f"{people} released as {'it is' if count == 1 else 'they are'}, or nearly" + (
        f" ({exact} bit for bit)" if exact else ""
    )


def decide_accounting(
    controls: Sequence[Control], contradictions: Sequence[str], doubts: Sequence[str], said: str
) -> Verdict:
    """The verdict of an audit that asks for epsilon alone, and for no people: ``said`` where all fits."""
    if failed := [control for control in controls if not control.passed]:
        return Verdict(Word.INVALID, "; ".join(f"control {c.name}: {c.said}" for c in failed))
    if contradictions:
        return Verdict(Word.CONTRADICTS_ACCOUNTING, "; ".join(contradictions))
    if doubts:
        return Verdict(Word.INCONCLUSIVE, "; ".join(doubts))
    return Verdict(Word.NO_LEAK_DETECTED, said)


def _leaks(result: AttackResult, thresholds: Thresholds) -> list[str]:
    found = []
    if result.tail_adjusted < TAIL_ALPHA:
        found.append(
            f"{result.name}: {result.tail.count} members score above all {result.tail.nonmembers} non-members "
            f"(p = {result.tail_adjusted:.1e}, adjusted)"
        )
    if not result.rates:
        return found
    beyond = result.rate_adjusted is not None and result.rate_adjusted < RATE_ALPHA
    if (
        beyond
        and result.tpr_interval is not None
        and isinstance(result.tpr, Rate)
        and result.tpr_interval.low > thresholds.tpr
    ):
        found.append(
            f"{result.name}: {result.tpr.count} of {result.tpr.of} members are told at a false-positive rate of "
            f"{thresholds.fpr:g}, at least a share of {result.tpr_interval.low:.3f} (accepted: {thresholds.tpr:g})"
        )
    if result.joint.low > thresholds.auc:
        found.append(
            f"{result.name}: area under the curve {result.auc:.3f}, at least {result.joint.low:.3f} "
            f"(accepted: {thresholds.auc:g})"
        )
    return found


def _open(result: AttackResult, thresholds: Thresholds, is_primary: bool) -> list[str]:
    """Why a leak beyond the thresholds cannot be excluded."""
    if not result.rates:
        return []
    if result.tied and is_primary:
        return [f"{result.name}: all scores are equal, so nothing was measured"]
    found = []
    if is_primary and isinstance(result.tpr, NotMeasurable):
        found.append(f"{result.name}: the rate at {thresholds.fpr:g} is not measurable: {result.tpr.why}")
    if is_primary and result.tpr_interval is not None and result.tpr_interval.high > thresholds.tpr:
        found.append(
            f"{result.name}: the rate at {thresholds.fpr:g} may be up to {result.tpr_interval.high:.3f} "
            f"(accepted: {thresholds.tpr:g})"
        )
    if result.interval.high > thresholds.auc:
        found.append(
            f"{result.name}: the area under the curve may be up to {result.interval.high:.3f} "
            f"(accepted: {thresholds.auc:g})"
        )
    return found


def _power(results: Sequence[AttackResult], thresholds: Thresholds, primary: str) -> str:
    result = next(r for r in results if r.name == primary)
    assert result.tpr_interval is not None
    return (
        f"power: a rate above {result.tpr_interval.high:.3f} at {thresholds.fpr:g}, or an area above "
        f"{max(r.interval.high for r in results if r.rates):.3f}, would have been seen"
    )
