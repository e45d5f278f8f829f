"""What a plan costs a data set: the releases that each of its exchanges makes, before one of them is made.

The methods make exactly these: where one could make fewer, it was charged for more, and never the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedsecure.plan import Plan
from fedsecure.plan.methods import CondensationSettings, FedAFSettings, FedSPMSettings, RoutedSettings
from fedsecure.plan.privacy import AnyPrivacySettings, DPSGDSettings, PrivacySettings, ReleaseSettings
from fedsecure.privacy.accounting import epsilon, quick_epsilon
from fedsecure.privacy.spend import Spend, merged

__all__ = ["affordable_rounds", "count_spend", "plan_spends", "spending_exchanges", "spends"]


def count_spend(privacy: PrivacySettings) -> Spend:
    """What counting a node's records by class costs, once a run. The discrete Gaussian on whole numbers tells a little
    more than the continuous one of the same sigma: it is within one of sigma / (1 + 1 / (24 sigma^2) + 1 / (200
    sigma^4)) for all sigma >= 1 (4.6 % less at 1, 0.04 % at 10)."""
    sigma = privacy.count_sigma
    return Spend(sigma / (1 + 1 / (24 * sigma**2) + 1 / (200 * sigma**4)), 1.0, 1)


def spends(plan: Plan, exchange: str, round_: int, records: int, counts: Sequence[int]) -> tuple[Spend, ...]:
    """What one node's part in ``exchange`` of round ``round_`` (from 0) costs, the counting aside; nothing for a plan
    without [privacy]. ``records``: all of the node's, which is public. ``counts`` (num_classes,): as the run counts
    them, with noise; 0 for a class that takes no part. ``ValueError`` for an exchange that the method does not have."""
    if plan.privacy is None:
        return ()
    if exchange == "counts":  # the number of all records is public
        return ()
    if exchange not in spending_exchanges(plan):
        raise ValueError(f"exchange {exchange!r}: {plan.method.name} has no such exchange that spends")
    costs = _every_round(plan, plan.privacy, exchange, records, counts)
    mixing = _mixing(plan, plan.privacy)
    if mixing is not None and round_ % mixing[0] == 0:
        costs = (*costs, mixing[1])
    return costs


def plan_spends(
    plan: Plan, records: int, counts: Sequence[int], rounds: int | None = None, *, counted: bool = False
) -> tuple[Spend, ...]:
    """What ``rounds`` of the plan cost a node, all of them unless it says otherwise, with the counting unless that was
    ``counted`` before; merged."""
    privacy, total = plan.privacy, plan.rounds if rounds is None else rounds
    if privacy is None:
        return ()
    whole = [] if counted else [count_spend(privacy)]
    if total > 0:
        for exchange in spending_exchanges(plan):
            each = _every_round(plan, privacy, exchange, records, counts)
            whole += [Spend(spend.sigma, spend.q, spend.steps * total) for spend in each]
        if (mixing := _mixing(plan, privacy)) is not None:
            whole.append(Spend(mixing[1].sigma, 1.0, -(-total // mixing[0])))
    return merged(whole)


def affordable_rounds(
    plan: Plan,
    records: int,
    counts: Sequence[int],
    history: Sequence[Spend],
    cap: float,
    delta: float,
    *,
    counted: bool = False,
) -> int:
    """The most rounds of ``plan``, up to its own, that a data set with this ``history`` can pay for within (``cap``,
    ``delta``); 0 where not one can be. ``counted``: the history holds the counting."""

    def fits(rounds: int, by: Callable[[Sequence[Spend], float], float]) -> bool:
        return by((*history, *plan_spends(plan, records, counts, rounds, counted=counted)), delta) <= cap

    def search(least: int, most: int, by: Callable[[Sequence[Spend], float], float]) -> int:
        """``least`` rounds fit, or are none; more than ``most`` do not, or are not asked for."""
        while least < most:
            middle = (least + most + 1) // 2
            least, most = (middle, most) if fits(middle, by) else (least, middle - 1)
        return least

    least = search(0, plan.rounds, quick_epsilon)  # the quick bound finds most of them, and is never below
    most = min(plan.rounds, least + least // 4 + 2)
    while most < plan.rounds and fits(most, epsilon):
        least, most = most, min(plan.rounds, 2 * most)
    return search(least, most, epsilon)


def spending_exchanges(plan: Plan) -> tuple[str, ...]:
    """Those of a round in which something is spent."""
    if isinstance(plan.method, FedAFSettings) and plan.method.sync == "two_phase":
        return ("statistics", "condensation")
    return ("update",) if isinstance(plan.method, RoutedSettings) else ("round",)


def _every_round(
    plan: Plan, privacy: AnyPrivacySettings, exchange: str, records: int, counts: Sequence[int]
) -> tuple[Spend, ...]:
    """What each round spends in ``exchange``, mixing weights aside."""
    if isinstance(privacy, DPSGDSettings):
        return (Spend(privacy.sigma, min(1.0, privacy.batch / records), privacy.steps),)
    assert isinstance(plan.method, CondensationSettings)
    held = [count for count in counts if count >= max(1, plan.method.min_count)]
    if not held:
        return ()
    if isinstance(privacy, ReleaseSettings):  # the first exchange of a round makes them; the second only reads them
        return () if exchange == "condensation" else (Spend(privacy.sigma, 1.0, privacy.networks),)
    statistics: tuple[Spend, ...] = ()
    steps: tuple[Spend, ...] = ()
    if isinstance(plan.method, FedAFSettings) and exchange != "condensation":
        statistics = (Spend(privacy.sigma, 1.0, 1),)
    if exchange != "statistics":
        # Classes compose in parallel, for a record is in one of them: the smallest has the highest rate.
        steps = (Spend(privacy.sigma, min(1.0, privacy.batch / min(held)), plan.method.steps),)
    return (*statistics, *steps)


def _mixing(plan: Plan, privacy: AnyPrivacySettings) -> tuple[int, Spend] | None:
    """Every how many rounds mixing weights are released, from round 0, and what that costs; ``None``: they are not."""
    method = plan.method
    if not isinstance(privacy, DPSGDSettings) or not isinstance(method, FedSPMSettings):
        return None
    if method.parametrisation != "explicit" or method.components == 1:
        return None
    return privacy.mixing_every, Spend(privacy.mixing_sigma, 1.0, 1)
