"""The institution's records, read and checked for a plan, and kept in memory while the daemon runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from fedsecure.config import canonical_json
from fedsecure.data.dataset import Dataset
from fedsecure.data.settings import AnySource
from fedsecure.errors import DataError
from fedsecure.plan import Plan
from fedsecure.tensors import Array

__all__ = ["FittingData", "IdentifiedData", "LoadData", "LocalData", "taking_part"]

#: (plan) -> records that fit it. Raises ``DataError``.
LoadData = Callable[[Plan], Dataset]


class IdentifiedData(Protocol):
    """Records whose identity is known: a privacy ledger charges it."""

    def __call__(self, plan: Plan) -> Dataset:
        """Records that fit ``plan``. Raises ``DataError``."""
        ...

    def digests(self, plan: Plan) -> tuple[bytes, ...]:
        """Digests (32 bytes) of the very records that a call gave or gives. Raises ``DataError``."""
        ...


def taking_part(data: Dataset, floor: int, counts: Array | None = None) -> Dataset:
    """``data`` without the records of classes of fewer than ``floor`` (``Policy.class_floor``), in the same order: all
    that a method may see of it. The classes keep their names and places; ``data`` itself when no class is below.
    ``counts``, int64 (num_classes,): what the floor is held against in place of the exact counts, for a private
    plan."""
    few = (data.counts() if counts is None else counts) < floor  # (num_classes,)
    out = few[data.y]  # (n,)
    return data.subset(np.flatnonzero(~out)) if out.any() else data


class FittingData:
    """Records from a function of a plan, identified by their source."""

    def __init__(self, load: LoadData, source: AnySource) -> None:
        self._load, self._source = load, source

    def __call__(self, plan: Plan) -> Dataset:
        """What the function gives."""
        return self._load(plan)

    def digests(self, plan: Plan) -> tuple[bytes, ...]:
        """Those of the source as it is now."""
        from fedsecure.data.fingerprint import record_digests

        return record_digests(self._source)


class LocalData:
    """Loads the node's source once for each task; every plan is checked against it anew. ``identify``: whether the
    records' digests are taken as they are loaded, also for a plan without [privacy]."""

    def __init__(
        self, source: AnySource, told: Callable[[list[str]], None], identify: Callable[[], bool] = lambda: False
    ) -> None:
        self._source = source
        self._told = told
        self._identify = identify
        self._by_task: dict[bytes, Dataset] = {}
        self._checked: set[str] = set()
        self._digests: tuple[bytes, ...] = ()

    def digests(self, plan: Plan) -> tuple[bytes, ...]:
        """Digests of the records that a call gives from now on. Raises ``DataError``."""
        if not self._digests or canonical_json(plan.task) not in self._by_task:
            self._read(plan, identify=True)
        return self._digests

    def _read(self, plan: Plan, *, identify: bool) -> None:
        """Load for the task of ``plan``, with digests of what was loaded: taken before and after, they are equal, or
        the records changed in between."""
        from fedsecure.data import load_dataset
        from fedsecure.data.fingerprint import record_digests

        before = record_digests(self._source) if identify else ()
        data = load_dataset(self._source, plan.task)
        if identify and record_digests(self._source) != before:
            raise DataError(
                "the records changed while they were read, so nobody can say which ones they are",
                hint="try again when nothing writes to the data source",
            )
        self._by_task = {canonical_json(plan.task): data}  # one task at a time: records can be large
        self._digests = before
        self._checked.clear()

    def __call__(self, plan: Plan) -> Dataset:
        """The records for ``plan``. Raises ``DataError`` when they cannot take part; the report stays on the node."""
        from fedsecure.data.check import check_dataset

        task = canonical_json(plan.task)
        if task not in self._by_task:
            self._read(plan, identify=plan.privacy is not None or self._identify())
        data = self._by_task[task]
        if plan.digest() not in self._checked:
            self._told(check_dataset(data, plan).lines())
            self._checked.add(plan.digest())
        return data
