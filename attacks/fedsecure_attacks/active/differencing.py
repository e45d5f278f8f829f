"""A8, differencing: a node whose record was erased answers the same question again (audit page, A8).

n v_old - (n - 1) v_new = f_w(x), the erased person's logits, to the last digits of float32. It takes the same model and
no statistics. What stops it: noise on every release, or no second release under an unchanged model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedsecure.condensation.means import ClassRecords, exact_means
from fedsecure.errors import AuditError
from fedsecure.models import Network, Parameters
from fedsecure_attacks.active.trap_model import logits_of
from fedsecure_attacks.records import Images
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["Differencing", "class_mean", "difference", "erased_logits"]

#: So near, relative to the logits' size, a recovered vector is the person's own.
EXACT = 1e-3
#: (mean logits (C,), records) -> what of it is released.
Release = Callable[[Floats, int], Floats]


def class_mean(network: Network, w: Parameters, x: Images, logit_clip: float | None = None) -> Floats:
    """Mean logits (C,) of the records of a class, by the product's own code, in float32."""
    records = ClassRecords((0,), (torch.tensor(x),))
    return np.asarray(exact_means(network, w, records, logit_clip=logit_clip).logits[0].numpy(), dtype=np.float64)


def erased_logits(before: Floats, after: Floats, records: int) -> Floats:
    """f_w(x) (C,) of the one record that ``before``, a mean over ``records``, has and ``after`` has not. Raises
    ``AuditError`` for fewer than two records: after the last one there is no mean."""
    if records < 2:
        raise AuditError(f"{records} records before the erasure (2 and more)")
    return np.asarray(records * before - (records - 1) * after)


@dataclass(frozen=True, slots=True)
class Differencing:
    """Over ``erasures``: how many people were ``named``, as nearest of all ``candidates`` to what was recovered; and
    the largest ``error`` relative to the logits' size."""

    erasures: int
    named: int
    candidates: int
    error: float

    @property
    def exact(self) -> bool:
        """Whether every recovered vector is the person's own."""
        return self.error <= EXACT

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        return {
            "erasures": self.erasures,
            "named": self.named,
            "candidates": self.candidates,
            "largest_relative_error": self.error,
            "exact": self.exact,
        }


def difference(
    network: Network,
    w: Parameters,
    x: Images,
    *,
    erasures: int,
    w_after: Parameters | None = None,
    logit_clip: float | None = None,
    release: Release = lambda mean, records: mean,
) -> Differencing:
    """Erase each of the first ``erasures`` of a class's people ``x`` (n, *shape), and ask again: under the same model,
    or under ``w_after``. ``release``: what is done to a mean before it leaves."""
    found = logits_of(network, w, x).astype(np.float64)
    known = found if logit_clip is None else found.clip(-logit_clip, logit_clip)
    size = float(np.abs(known).max()) or 1.0
    named, worst = 0, 0.0
    before = release(class_mean(network, w, x, logit_clip), len(x))
    for person in range(erasures):
        rest = np.delete(x, person, axis=0)
        after = release(class_mean(network, w_after or w, rest, logit_clip), len(rest))
        recovered = erased_logits(before, after, len(x))
        distances = np.abs(known - recovered).max(axis=1)
        named += int(distances.argmin()) == person
        worst = max(worst, float(distances[person]) / size)
    return Differencing(erasures, named, len(x), worst)
