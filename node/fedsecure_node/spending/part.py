"""The records that take part in a plan, and the counts by which that is decided."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedsecure.data.dataset import Dataset
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.tensors import Array
from fedsecure_node.plans.localdata import taking_part

__all__ = ["Part", "plain_part"]


@dataclass(frozen=True, slots=True)
class Part:
    """``data``: the only records that a method or the gate ever sees. ``counts``: int64 (num_classes,), what floors
    are held against; of a private plan they have noise, and nothing that leaves follows from the exact ones.
    ``records``: of how many a contribution may say that it was made; of a private plan all, since those that were left
    out are nobody's business. ``data_set``: who pays; ``""`` without [privacy]."""

    data: Dataset = field(repr=False)
    counts: Array
    records: int
    data_set: str = ""


def plain_part(data: Dataset, plan: Plan, policy: Policy) -> Part:
    """Of a plan without [privacy]: exact counts. Raises ``PolicyError`` when too few records take part."""
    kept = taking_part(data, policy.class_floor(plan))
    policy.check_records(len(kept))
    return Part(kept, kept.counts(), len(kept))
