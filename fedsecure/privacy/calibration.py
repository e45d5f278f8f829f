"""How much noise a plan needs, so that it costs a data set no more than a given epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from fedsecure.plan import Plan
from fedsecure.privacy.accounting import default_delta, epsilon, quick_epsilon
from fedsecure.privacy.costs import plan_spends
from fedsecure.privacy.spend import Spend, merged

__all__ = ["sigma_for", "sigma_for_all", "with_sigma"]

#: Noise multipliers that a plan may have.
LEAST, MOST = 1e-3, 1e6
#: What is found costs this much of the cap, or all of it.
CLOSE = 0.996
#: Asking PRV takes a second; this often is enough, since log epsilon is nearly straight in log sigma.
MOST_STEPS = 12


def with_sigma(plan: Plan, sigma: float) -> Plan:
    """The same plan with another noise multiplier. ``ValueError`` for a plan without [privacy]."""
    if plan.privacy is None:
        raise ValueError(f"plan {plan.name} asks for no differential privacy")
    return plan.model_copy(update={"privacy": plan.privacy.model_copy(update={"sigma": sigma})})


def sigma_for(
    plan: Plan, records: int, counts: Sequence[int], cap: float, delta: float, history: Sequence[Spend] = ()
) -> float:
    """The noise multiplier with which the whole of ``plan``, the counting included, takes a data set of ``records``
    (``counts``: by class) from ``history`` to just under epsilon ``cap`` at ``delta``. The plan's own sigma plays no
    part. ``math.inf`` where no noise is enough: what was spent before, the counting and what else has noise of its own
    already pass the cap. ``ValueError`` for a plan without [privacy]."""

    def cost(sigma: float, by: Callable[[Sequence[Spend], float], float] = epsilon) -> float:
        return by(merged((*history, *plan_spends(with_sigma(plan, sigma), records, counts))), delta)

    if cost(MOST, quick_epsilon) > cap:
        return math.inf
    low, high = LEAST, MOST
    while high > 1.05 * low:  # the quick bound says what is enough, for it is never below
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(middle, quick_epsilon) <= cap else (middle, high)
    return _rounded_up(_closer(high, cap, cost))


def sigma_for_all(
    plan: Plan, nodes: Mapping[str, Sequence[int]], cap: float, delta_of: Callable[[int], float] = default_delta
) -> float:
    """As ``sigma_for``, for the one sigma that a plan has in all nodes: the largest of theirs. ``nodes``: node id ->
    records by class; ``delta_of``: records -> delta. ``ValueError`` for no node."""
    return max(sigma_for(plan, sum(counts), counts, cap, delta_of(sum(counts))) for counts in nodes.values())


def _closer(enough: float, cap: float, cost: Callable[[float], float]) -> float:
    """A sigma of at most ``enough`` that costs nearly ``cap``, by secants through (log sigma, log epsilon)."""
    target = cap * (1 + CLOSE) / 2
    high, spent = enough, cost(enough)
    over: tuple[float, float] | None = None  # sigma and epsilon of what costs too much
    for _ in range(MOST_STEPS):
        if over is None:  # mostly epsilon falls faster than sigma rises, so this is too little noise, or just enough
            guess = high * spent / target
        else:
            share = math.log(over[1] / target) / math.log(over[1] / spent)
            guess = over[0] * (high / over[0]) ** share
        if spent >= CLOSE * cap or guess <= LEAST:
            break
        found = cost(guess)
        if found <= cap:
            high, spent = guess, found
        else:
            over = (guess, found)
    return high


def _rounded_up(sigma: float) -> float:
    """To four digits, which a person can read: at most 0.1 % more."""
    unit = 10.0 ** (math.floor(math.log10(sigma)) - 3)
    return float(f"{math.ceil(sigma / unit - 1e-9) * unit:.4g}")
