"""Records as an audit compares them: people who are in, people who are out, people to learn the population from, and
what was released.

Values are compared as they are: images in [0, 1], tables as numbers. Who is in and who is out is known here alone; an
attack is handed candidates without it.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedsecure.errors import AuditError

__all__ = ["Candidates", "Labelled", "Pools", "without_twins"]

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
#: A network has an output for each class: labels are class numbers, and no identifiers.
MOST_CLASSES = 10_000


@dataclass(frozen=True, eq=False)
class Labelled:
    """``x``: float32 (n, *shape), finite. ``y``: int64 (n,), class numbers, not negative. ``name`` says whose.

    Raises ``AuditError`` naming the array, and how many values are not finite: none is ever dropped.
    """

    name: str
    x: Images = field(repr=False)
    y: Labels = field(repr=False)

    def __post_init__(self) -> None:
        if self.x.dtype != np.float32 or self.y.dtype != np.int64:
            raise AuditError(f"{self.name}: {self.x.dtype} records and {self.y.dtype} labels (float32, int64 are due)")
        if self.x.ndim < 2 or self.y.shape != (len(self.x),):
            raise AuditError(f"{self.name}: records {list(self.x.shape)} do not go with labels {list(self.y.shape)}")
        if wrong := int((~np.isfinite(self.x)).sum()):
            raise AuditError(f"{self.name}: array x holds {wrong} values that are not finite")
        if len(self.y) and (int(self.y.min()) < 0 or int(self.y.max()) >= MOST_CLASSES):
            raise AuditError(
                f"{self.name}: array y holds labels from {self.y.min()} to {self.y.max()} (allowed: 0 to "
                f"{MOST_CLASSES - 1})",
                hint="number the classes from 0",
            )
        if not math.prod(self.x.shape[1:]):
            raise AuditError(f"{self.name}: records of shape {list(self.x.shape[1:])} hold no value")

    def __len__(self) -> int:
        return len(self.y)

    @property
    def rows(self) -> Images:
        """Flattened records (n, d)."""
        return self.x.reshape(len(self.x), math.prod(self.x.shape[1:]))

    def take(self, index: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Labelled:
        """The records at ``index``."""
        return Labelled(self.name, self.x[index], self.y[index])

    def counts(self, index: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | None = None) -> dict[int, int]:
        """How many of the records at ``index``, or of all, each class has that has any."""
        values, many = np.unique(self.y if index is None else self.y[index], return_counts=True)
        return dict(zip(values.tolist(), many.tolist(), strict=True))

    def fingerprints(self) -> list[bytes]:
        """SHA-256 of each record's shape and values; the label is not in it."""
        begun = hashlib.sha256(repr(self.x.shape[1:]).encode())
        found = []
        for row in self.rows:
            one = begun.copy()
            one.update(np.ascontiguousarray(row).data)
            found.append(one.digest())
        return found

    def digest(self) -> str:
        """SHA-256 (hex) of records and labels in their order."""
        found = hashlib.sha256(repr((self.x.shape, self.x.dtype.str)).encode())
        found.update(np.ascontiguousarray(self.x).data)
        found.update(np.ascontiguousarray(self.y).data)
        return found.hexdigest()


@dataclass(frozen=True, eq=False)
class Candidates:
    """Members and non-members together, shuffled, with nothing that tells which is which: what an attack scores."""

    x: Images = field(repr=False)
    y: Labels = field(repr=False)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def rows(self) -> Images:
        """Flattened records (n, d)."""
        return self.x.reshape(len(self.x), math.prod(self.x.shape[1:]))


@dataclass(frozen=True, eq=False)
class Pools:
    """``members``, ``nonmembers``, and ``reference``: people of the same population of whom none is a candidate.

    Raises ``AuditError`` when shapes differ, or when a record of ``reference`` is a candidate, too: an attack that
    learns the population from its own non-members finds a leak where there is none.
    """

    members: Labelled
    nonmembers: Labelled
    reference: Labelled

    def __post_init__(self) -> None:
        shapes = {part.x.shape[1:] for part in (self.members, self.nonmembers, self.reference)}
        if len(shapes) > 1:
            raise AuditError(f"records of different shapes: {', '.join(str(list(s)) for s in sorted(shapes))}")
        known = set(self.reference.fingerprints())
        for part in (self.members, self.nonmembers):
            if shared := sum(key in known for key in part.fingerprints()):
                raise AuditError(
                    f"{self.reference.name}: {shared} of its records are among the {part.name}, too",
                    hint="the population is learnt from people who are no candidates",
                )

    def candidates(self, generator: np.random.Generator) -> tuple[Candidates, npt.NDArray[np.bool_]]:
        """All candidates in random order, and which of them are members (n,)."""
        x = np.concatenate([self.members.x, self.nonmembers.x])
        y = np.concatenate([self.members.y, self.nonmembers.y])
        inside = np.arange(len(y)) < len(self.members)
        order = generator.permutation(len(y))
        return Candidates(x[order], y[order]), inside[order]


def without_twins(members: Labelled, nonmembers: Labelled) -> tuple[Labelled, Labelled, int, int]:
    """Both without the records that are in both, how many such pairs there were, and how many members are copies of
    another member (which stay: each of them counts double in every mean)."""
    in_keys, out_keys = members.fingerprints(), nonmembers.fingerprints()
    both = set(in_keys) & set(out_keys)
    kept_in = np.array([key not in both for key in in_keys], dtype=np.bool_)
    kept_out = np.array([key not in both for key in out_keys], dtype=np.bool_)
    inner = len(in_keys) - len(set(in_keys))
    return members.take(kept_in), nonmembers.take(kept_out), len(both), inner
