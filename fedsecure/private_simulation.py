"""The nodes of a simulation under differential privacy: what each counts once, pays, and may compute from.

No ledger: the history of a node begins with the run and is kept in its checkpoint. No cap either; what was paid is
said at the end. The noise is the real one, so that two runs of one plan differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsecure.errors import DataError
from fedsecure.privacy.accounting import default_delta, epsilon
from fedsecure.privacy.context import PrivacyContext
from fedsecure.privacy.costs import count_spend, spends
from fedsecure.privacy.counting import counted_once, kept_records, taking_part_counts
from fedsecure.privacy.labels import label_of
from fedsecure.privacy.noise import noise_source
from fedsecure.privacy.shares import SharedHistory, mechanism_of
from fedsecure.privacy.spend import Spend, merged
from fedsecure.tensors import Tensors

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.plan import Plan

__all__ = ["Paid", "PrivateNodes"]


@dataclass(frozen=True, slots=True)
class Paid:
    """What a node paid until now, and the label of all that it sent. ``epsilon`` is ``None`` where it has no bound."""

    epsilon: float | None
    delta: float
    label: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The node's entry in ``result.json``."""
        return {"epsilon": self.epsilon, "delta": self.delta, "label": dict(self.label)}


class PrivateNodes:
    """Counts, histories and noise of all nodes. ``data``: node id -> all its records."""

    def __init__(self, plan: Plan, data: Mapping[str, Dataset]) -> None:
        assert plan.privacy is not None
        self._plan, self._settings, self._all = plan, plan.privacy, data
        self._noise = noise_source(plan.privacy.noise)
        self._counts: dict[str, tuple[int, ...]] = {}
        self._kept: dict[str, Dataset] = {}
        self._history: dict[str, tuple[Spend, ...]] = {}
        self._paid: dict[tuple[int, tuple[Spend, ...]], Paid] = {}

    def pay(self, node: str, exchange: str, round_: int) -> PrivacyContext:
        """Charge one exchange of a node, and before its first one the counting; then it may be computed. Raises
        ``DataError`` when none of its classes takes part."""
        if node not in self._counts:
            self._charge(node, (count_spend(self._settings),))
            self._counts[node] = counted_once(self._all[node].counts(), self._settings, self._noise)
        counts, records = taking_part_counts(self._counts[node], 1), len(self._all[node])
        if not any(counts):
            raise DataError(
                f"node {node}: by its noisy counts no class takes part",
                hint="deal it more records, or lower privacy.count_sigma",
            )
        self._charge(node, spends(self._plan, exchange, round_, records, counts))
        return PrivacyContext(settings=self._settings, counts=counts, records=records, noise=self._noise)

    def records(self, node: str) -> Dataset:
        """The records of the classes that take part, once it has paid."""
        if node not in self._kept:
            everything = self._all[node]
            self._kept[node] = everything.subset(kept_records(everything.y, taking_part_counts(self._counts[node], 1)))
        return self._kept[node]

    def paid(self, node: str) -> Paid:
        """What a node paid until now; takes a second where the history is new."""
        records, history = len(self._all[node]), merged(self._history.get(node, ()))
        if (records, history) not in self._paid:
            delta = default_delta(records)
            spent = epsilon(history, delta)
            shared = SharedHistory()
            for paid in history:
                shared.add((paid,), mechanism_of(self._settings, len(set(self._plan.cohort.nodes)), (paid,)))
            label = label_of(self._settings, spent, delta, trust=shared.trust(delta, epsilon)).to_json()
            self._paid[records, history] = Paid(spent if math.isfinite(spent) else None, delta, label)
        return self._paid[records, history]

    def _charge(self, node: str, costs: tuple[Spend, ...]) -> None:
        self._history[node] = merged((*self._history.get(node, ()), *costs))

    def checkpoint(self) -> Tensors:
        """Counts, int64 (num_classes,), and histories, float64 (entries, 3): sigma, q, steps; of those who paid."""
        counts = {f"counts.{node}": np.array(found, np.int64) for node, found in self._counts.items()}
        history = {
            f"history.{node}": np.array([(s.sigma, s.q, s.steps) for s in found], np.float64).reshape(-1, 3)
            for node, found in self._history.items()
        }
        return Tensors({**counts, **history})

    def resume(self, tensors: Tensors) -> None:
        """Go on from a ``checkpoint``: no record is counted twice."""
        self._counts = {node: tuple(map(int, found)) for node, found in tensors.under("counts").items()}
        self._history = {
            node: tuple(Spend(float(sigma), float(q), int(steps)) for sigma, q, steps in found)
            for node, found in tensors.under("history").items()
        }
        self._kept.clear()
