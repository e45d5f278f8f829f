"""Records that take part in nothing: people of the same population who are certainly not in any release.

A record is held out when the first eight bytes of its digest, as a fraction, are below the policy's ``audit.holdout``.
A digest follows from the record alone (``fedsecure.data.fingerprint``): the same people are held out in every run, by
every plan, and whatever is added to or taken from the records; equal records are on one side. Records of the node's own
[holdout] source are held out besides, also where [data] has them, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsecure.config import canonical_json
from fedsecure.data.dataset import Dataset
from fedsecure.data.settings import AnySource
from fedsecure.errors import DataError
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.tensors import Array
from fedsecure_node.plans.localdata import IdentifiedData

__all__ = ["HeldOut", "Split", "chosen"]

#: What a digest is hashed with, so that nothing else that is drawn from digests is drawn alike.
_LABEL = b"fedsecure/held-out/v1\0"


@dataclass(frozen=True, slots=True)
class Split:
    """``rest``: records that may take part in a run, in the order of the source. ``out``: those that never do."""

    rest: Dataset = field(repr=False)
    out: Dataset = field(repr=False)


def chosen(digests: Sequence[bytes], share: float) -> Array:
    """Which of the records with these digests (32 bytes each) are held out for ``share``: bool (n,)."""
    places = [int.from_bytes(hashlib.sha256(_LABEL + digest).digest()[:8], "big") for digest in digests]
    return np.array([place < int(share * 2**64) for place in places], dtype=np.bool_)


class HeldOut:
    """Splits the node's records. ``others``: the source of further held-out records, if there is one."""

    def __init__(self, data: IdentifiedData, others: AnySource | None = None) -> None:
        self._data, self._source = data, others
        self._others: tuple[bytes, Dataset] | None = None
        self._last: tuple[Dataset, float, Split] | None = None

    def split(self, plan: Plan, policy: Policy) -> Split:
        """The records for ``plan``, as ``policy`` divides them. Raises ``DataError`` when they do not fit the plan, or
        when none would be left."""
        data, share = self._data(plan), policy.audit.holdout
        if self._last is not None and self._last[0] is data and self._last[1] == share:
            return self._last[2]
        others = self._read_others(plan)
        out = chosen(self._digests(data, plan), share) if share else np.zeros(len(data), np.bool_)  # (n,)
        if others is not None:
            known = set(_by_values(others))
            out |= np.array([digest in known for digest in _by_values(data)], dtype=np.bool_)
        if len(data) and out.all():
            raise DataError("all records are held out for the audit", hint="lower audit.holdout, or add records")
        split = Split(data.subset(np.flatnonzero(~out)) if out.any() else data, data.subset(np.flatnonzero(out)))
        if others is not None:
            split = Split(split.rest, _together(split.out, others))
        self._last = (data, share, split)
        return split

    def _digests(self, data: Dataset, plan: Plan) -> list[bytes]:
        """One of each record; of its values as the plan has them where nobody knows which of the source it is."""
        if data.rows is None:
            return list(_by_values(data))
        digests = self._data.digests(plan)
        return [digests[row] for row in data.rows]

    def _read_others(self, plan: Plan) -> Dataset | None:
        if self._source is None:
            return None
        from fedsecure.data import load_dataset

        task = canonical_json(plan.task)
        if self._others is None or self._others[0] != task:
            self._others = (task, load_dataset(self._source, plan.task))
        return self._others[1]


def _by_values(data: Dataset) -> Iterator[bytes]:
    for row in np.ascontiguousarray(data.x + np.float32(0), dtype="<f4"):  # -0 and 0 are one number
        yield hashlib.sha256(row.tobytes()).digest()


def _together(first: Dataset, second: Dataset) -> Dataset:
    """Both, without records of ``second`` that are in ``first``."""
    known = set(_by_values(first))
    fresh = second.subset(np.flatnonzero([digest not in known for digest in _by_values(second)]))
    return Dataset(np.concatenate([first.x, fresh.x]), np.concatenate([first.y, fresh.y]), first.classes)
