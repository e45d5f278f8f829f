"""The scores that an attack gives: larger means more likely a member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedsecure.errors import AuditError

__all__ = ["Floats", "Scores"]

Floats = npt.NDArray[np.float64]


def _checked(values: npt.ArrayLike, whose: str) -> Floats:
    array = np.array(values, dtype=np.float64)
    if array.ndim != 1:
        raise AuditError(f"scores of {whose}: an array of shape {list(array.shape)} where one score a record is due")
    if not len(array):
        raise AuditError(
            f"scores of {whose}: there are none, so members and non-members cannot be compared",
            hint="an audit needs records of both kinds",
        )
    if wrong := int((~np.isfinite(array)).sum()):
        raise AuditError(
            f"scores of {whose}: {wrong} of {len(array)} are not finite",
            hint="none is left out: find what made them, the released tensors first",
        )
    array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False)
class Scores:
    """``members`` (n1,) and ``nonmembers`` (n0,), float64, finite, both with at least one record.

    Raises ``AuditError`` naming the array and how many of its scores are not finite: a score that is not a number would
    be sorted to one end, and nothing is ever dropped.
    """

    members: Floats = field(repr=False)
    nonmembers: Floats = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", _checked(self.members, "members"))
        object.__setattr__(self, "nonmembers", _checked(self.nonmembers, "non-members"))

    def __repr__(self) -> str:
        return f"Scores({self.n1} members, {self.n0} non-members)"

    @property
    def n1(self) -> int:
        """Members."""
        return len(self.members)

    @property
    def n0(self) -> int:
        """Non-members."""
        return len(self.nonmembers)

    @property
    def are_tied(self) -> bool:
        """Whether all records have one score: then nothing was measured."""
        return float(min(self.members.min(), self.nonmembers.min())) == float(
            max(self.members.max(), self.nonmembers.max())
        )

    @classmethod
    def of(cls, scores: npt.ArrayLike, is_member: Sequence[bool] | npt.NDArray[np.bool_]) -> Scores:
        """Split ``scores`` (n,) by ``is_member`` (n,)."""
        flags = np.asarray(is_member, dtype=np.bool_)
        values = np.asarray(scores, dtype=np.float64)
        if flags.shape != values.shape:
            raise AuditError(f"{values.size} scores do not go with {flags.size} memberships")
        return cls(values[flags], values[~flags])
