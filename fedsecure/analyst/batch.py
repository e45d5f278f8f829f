"""What came of each record of a batch, so that an end midway, whatever it is, loses no answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsecure.errors import FedSecureError
from fedsecure.tensors import Array

__all__ = ["Answer", "Batch", "Watch"]

#: Told after every query: how many records are settled, and how many there are.
Watch = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What ``node`` says about one record. ``probabilities``: float32 (K,); ``components``: float32 (C,), the posterior
    of the node's mixture components. ``best``: the best-matched node, which is ``node`` itself unless it could not be
    reached. ``scores``: node -> log P(node | record) up to a constant, when they are known."""

    node: str
    best: str
    probabilities: Array
    components: Array
    scores: Mapping[str, float] | None = None

    @property
    def fallback(self) -> bool:
        """Whether another than the best-matched node answered."""
        return self.node != self.best


class Batch:
    """Answers and errors by record (its row, from 0). ``stopped``: what ended the whole batch before its end;
    ``interrupted``: a person did."""

    def __init__(self, records: int, watch: Watch = lambda settled, records: None) -> None:
        self.answers: dict[int, Answer] = {}
        self.faults: dict[int, FedSecureError] = {}
        self.stopped: FedSecureError | None = None
        self.interrupted = False
        self._open = np.ones(records, dtype=bool)  # (records,)
        self._watch = watch

    def open(self) -> Array:
        """Rows that have neither an answer nor an error, int64, ascending."""
        return np.flatnonzero(self._open)

    def take(self, rows: Array, answers: Sequence[Answer]) -> None:
        """``rows`` are answered."""
        self.answers |= zip(rows.tolist(), answers, strict=True)
        self._settle(rows)

    def fail(self, rows: Array, error: FedSecureError) -> None:
        """``rows`` have no answer, by ``error``."""
        self.faults |= dict.fromkeys(rows.tolist(), error)
        self._settle(rows)

    def stop(self, error: FedSecureError) -> None:
        """Nobody can be asked any more, by ``error``: no row is open from here on."""
        self.stopped = error
        self.fail(self.open(), error)

    @property
    def fault(self) -> FedSecureError | None:
        """The error that a command ends with: what stopped the batch, or that of its first record without an
        answer."""
        return self.stopped or (self.faults[min(self.faults)] if self.faults else None)

    def _settle(self, rows: Array) -> None:
        self._open[rows] = False
        self._watch(int((~self._open).sum()), len(self._open))
