"""What a deal hands out: each node's training records, and the records to test on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedsecure.data.dataset import Dataset

__all__ = ["Dealt", "joined"]


@dataclass(frozen=True)
class Dealt:
    """``train``: node id -> its training records, in the order of the ids. ``test``: all test records. ``tests``:
    node id -> its own held-out records, whose concatenation in node order ``test`` is; empty when they were held out
    of the pooled records, before anything was dealt."""

    train: dict[str, Dataset]
    test: Dataset
    tests: dict[str, Dataset] = field(default_factory=dict)

    @classmethod
    def per_node(cls, train: Mapping[str, Dataset], tests: Mapping[str, Dataset]) -> Dealt:
        """The deal in which every node held out records of its own. ``test`` and ``tests`` share their memory."""
        test = joined(list(tests.values()))
        cuts = np.cumsum([len(data) for data in tests.values()])[:-1]
        parts = zip(tests, np.split(test.x, cuts), np.split(test.y, cuts), strict=True)
        return cls(dict(train), test, {node: Dataset(x, y, test.classes) for node, x, y in parts})


def joined(parts: list[Dataset]) -> Dataset:
    """The records of all ``parts`` (at least one, of one shape and the same classes), in that order."""
    return Dataset(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]), parts[0].classes)
