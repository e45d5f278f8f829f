"""The institution's records, read and checked for a plan, and kept in memory while the daemon runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsecure.config import canonical_json
from fedsecure.data.dataset import Dataset
from fedsecure.data.settings import AnySource
from fedsecure.plan import Plan
from fedsecure.policy import Policy

__all__ = ["LoadData", "LocalData", "taking_part"]

#: (plan) -> records that fit it. Raises ``DataError``.
LoadData = Callable[[Plan], Dataset]


def taking_part(data: Dataset, policy: Policy) -> Dataset:
    """``data`` without the records of classes below ``plans.min_records_per_class``, in the same order: all that a
    method may see of it. The classes keep their names and places; ``data`` itself when no class is below."""
    few = data.counts() < policy.plans.min_records_per_class  # (num_classes,)
    out = few[data.y]  # (n,)
    return data.subset(np.flatnonzero(~out)) if out.any() else data


class LocalData:
    """Loads the node's source once for each task; every plan is checked against it anew."""

    def __init__(self, source: AnySource, told: Callable[[list[str]], None]) -> None:
        self._source = source
        self._told = told
        self._by_task: dict[bytes, Dataset] = {}
        self._checked: set[str] = set()

    def __call__(self, plan: Plan) -> Dataset:
        """The records for ``plan``. Raises ``DataError`` when they cannot take part; the report stays on the node."""
        from fedsecure.data import load_dataset
        from fedsecure.data.check import check_dataset

        task = canonical_json(plan.task)
        if task not in self._by_task:
            self._by_task = {task: load_dataset(self._source, plan.task)}  # one task at a time: records can be large
            self._checked.clear()
        data = self._by_task[task]
        if plan.digest() not in self._checked:
            self._told(check_dataset(data, plan).lines())
            self._checked.add(plan.digest())
        return data
