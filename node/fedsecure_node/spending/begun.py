"""What the private runs that this node has begun may still spend: a plan that fits only beside what was spent until now
would take from them what they need, and none of them could be finished.

The ledger pays exchange by exchange and holds nothing back: this is asked before a plan is joined, and of this node's
own runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fedsecure.plan import Plan
from fedsecure.privacy.entries import Entry
from fedsecure.privacy.spend import Spend, merged
from fedsecure_node.settings import NodeSettings
from fedsecure_node.spending.purse import COUNTING
from fedsecure_node.store.countbook import Counted
from fedsecure_node.store.store import Store

__all__ = ["Begun", "BegunRuns", "begun_runs", "begun_runs_at", "still_to_spend"]


@dataclass(frozen=True, slots=True)
class Begun:
    """A private run that goes on. ``counted``: its records by class with noise; ``None``: it did not count yet."""

    plan: Plan
    digest: str
    counted: Counted | None


#: The private runs of this node that go on now.
BegunRuns = Callable[[], tuple[Begun, ...]]


def begun_runs(store: Store) -> tuple[Begun, ...]:
    """Those that ``store`` knows: joined, not over at the coordinator either, and not refused since."""
    found = []
    for digest in store.runs.active():
        seen = store.plans.get(digest)
        if seen.offered in ("completed", "aborted") or seen.decision == "refused":
            continue
        if (plan := seen.plan()).privacy is not None:
            found.append(Begun(plan, digest, store.counts.find(digest)))
    return tuple(found)


def begun_runs_at(settings: NodeSettings) -> tuple[Begun, ...]:
    """Those of the node with these settings; none before its first start."""
    if not settings.store.exists():
        return ()
    with Store(settings.store, create=False) as store:
        return begun_runs(store)


def still_to_spend(plan: Plan, records: int, counts: Sequence[int], charged: Iterable[Entry]) -> tuple[Spend, ...]:
    """What the run of ``plan`` has yet to pay when all goes well, merged: the counting, and the exchanges after the
    last one that this node was ``charged`` for in it. ``records``, ``counts``: as ``costs.spends`` takes them."""
    from fedsecure.privacy.costs import count_spend, plan_spends, spending_exchanges, spends

    assert plan.privacy is not None
    paid = {(entry.what.round, entry.what.exchange) for entry in charged}
    begun = max((round_ + 1 for round_, exchange in paid if exchange != COUNTING), default=0)  # rounds
    left = [] if paid else [count_spend(plan.privacy)]
    for exchange in spending_exchanges(plan) if begun else ():
        if (begun - 1, exchange) not in paid:
            left += spends(plan, exchange, begun - 1, records, counts)
    until_now = {
        (spend.sigma, spend.q): spend.steps for spend in plan_spends(plan, records, counts, begun, counted=True)
    }
    for spend in plan_spends(plan, records, counts, counted=True):
        if (steps := spend.steps - until_now.get((spend.sigma, spend.q), 0)) > 0:
            left.append(Spend(spend.sigma, spend.q, steps))
    return merged(left)
