"""No second answer under a model that this node answered under before, from records that differ by a few.

Two class means under one model, before and after one person was erased, give that person's logits: n v_old - (n - 1)
v_new, to the last digit (audit page, A8). An answer from the very same records is no new one. Masked sums are not
repeated at all between runs (``masking.repeats``); this holds for them, too. Plans with [privacy] have noise of their
own on every answer, and the ledger counts them.

A model is known by its parameters' values. One that answers the same with other parameters is not recognised.
"""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np

from fedsecure.data.dataset import Dataset
from fedsecure.errors import PolicyError
from fedsecure.policy import Policy
from fedsecure.tensors import Tensors
from fedsecure.text import counted
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.store.answerbook import MARK_BYTES, AnswerBook

__all__ = ["Rereleases", "model_digest"]


def model_digest(broadcast: Tensors) -> str:
    """SHA-256 (hexadecimal) of the model in a broadcast: of names, shapes and values, whatever else travels with it.
    Zero and minus zero are one value."""
    found = hashlib.sha256(b"fedsecure/answered/v1\0")
    model = broadcast.under("model") if any(name.startswith("model.") for name in broadcast) else broadcast
    for name, array in sorted(model.items()):
        values = np.ascontiguousarray(array + 0 if array.dtype.kind == "f" else array)
        found.update(hashlib.sha256(repr((name, array.shape, array.dtype.str)).encode()).digest())
        found.update(hashlib.sha256(values.tobytes()).digest())
    return found.hexdigest()


class Rereleases:
    """Asked of every exchange of a plan without [privacy] whose broadcast holds a model."""

    def __init__(self, book: AnswerBook) -> None:
        self._book = book

    def check(self, broadcast: Tensors, data: Dataset, policy: Policy) -> None:
        """Raise ``PolicyError`` (``release.min_changed_records``) when this node answered under the model before, from
        records that differ from ``data`` by one or more, but by fewer than the policy's number."""
        least = policy.release.min_changed_records
        if least <= 1 or not len(broadcast):
            return
        marks = self._marks(data)
        for other in self._book.under(model_digest(broadcast), _set_of(marks)):
            changed = len(marks ^ other.marks)
            if 0 < changed < least:
                raise PolicyError(
                    f"release.min_changed_records: {counted(changed, 'record')} changed since this node answered under "
                    f"the same model in plan {other.run[:12]} (allowed: none, or >= {least}): the difference of both "
                    "answers would be these records'",
                    hint="nothing was computed; take part again once the model has changed (approve with --rejoin), or "
                    "ask for a plan with another seed",
                )

    def take(self, key: ExchangeKey, broadcast: Tensors, data: Dataset) -> None:
        """Keep that an answer was made from ``data`` under the model; on the disk on return."""
        if len(broadcast):
            marks = self._marks(data)
            self._book.keep(key.plan, model_digest(broadcast), _set_of(marks), marks)

    def _marks(self, data: Dataset) -> frozenset[bytes]:
        """One mark for each record with its label; copies of one record are numbered."""
        key, seen, found = self._book.key(), Counter[bytes](), []
        for row, label in zip(np.ascontiguousarray(data.x), data.y.tolist(), strict=True):
            mark = hashlib.blake2b(row.tobytes() + label.to_bytes(8, "little"), key=key, digest_size=MARK_BYTES)
            seen[mark.digest()] += 1
            mark.update(seen[mark.digest()].to_bytes(8, "little"))
            found.append(mark.digest())
        return frozenset(found)


def _set_of(marks: frozenset[bytes]) -> str:
    return hashlib.sha256(b"".join(sorted(marks))).hexdigest()
