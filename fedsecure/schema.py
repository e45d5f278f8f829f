"""What may travel: tensors by name, dtype, shape and range, and the two halves of a contribution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedsecure.errors import DataError
from fedsecure.tensors import Array, Header, Tensors

__all__ = ["Axis", "Contribution", "Role", "Schema", "TensorSpec"]


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension whose length the node chooses, within bounds. Axes of one name have one length in a contribution."""

    name: str
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.name}:{self.low}..{self.high}"


#: What a node's checks must know of a tensor: ``condensed`` data and its ``labels``, ``logits`` of classes that are
#: means or (with a ``class_weight``) weighted sums, the number of ``records`` a contribution was made from. A
#: ``value`` is anything else.
Role = Literal["value", "condensed", "labels", "logits", "class_weight", "records"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor that may travel: name, dtype, shape, closed range of its values, what it is in words, and the
    ``role`` that the institution's rules are checked by."""

    name: str
    dtype: str
    shape: tuple[int | Axis, ...]
    low: float
    high: float
    what: str
    role: Role = "value"

    @property
    def max_nbytes(self) -> int:
        """The most bytes this tensor can have."""
        lengths = [d.high if isinstance(d, Axis) else d for d in self.shape]
        return math.prod(lengths) * np.dtype(self.dtype).itemsize

    def check_header(self, dtype: str, shape: tuple[int, ...], axes: dict[str, int]) -> None:
        """Check dtype and shape before anything is allocated; ``axes`` collects the lengths seen so far."""
        if dtype != self.dtype:
            raise DataError(f"tensor {self.name}: dtype {dtype} where {self.dtype} is due")
        if len(shape) != len(self.shape):
            raise DataError(f"tensor {self.name}: shape {list(shape)} where {self.shape_text()} is due")
        for length, due in zip(shape, self.shape, strict=True):
            if isinstance(due, Axis):
                fits = due.low <= length <= due.high and axes.setdefault(due.name, length) == length
            else:
                fits = length == due
            if not fits:
                raise DataError(f"tensor {self.name}: shape {list(shape)} where {self.shape_text()} is due")

    def check_values(self, array: Array) -> None:
        """Refuse NaN, infinities and values outside ``[low, high]``."""
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = int(array.size - np.isfinite(array).sum())
            raise DataError(f"tensor {self.name}: {bad} of {array.size} values are not finite")
        if array.size and array.dtype.kind != "b":
            least, most = array.min(), array.max()
            if least < self.low or most > self.high:
                raise DataError(f"tensor {self.name}: values {least:g}..{most:g} outside {self.low:g}..{self.high:g}")

    def shape_text(self) -> str:
        """The shape in words, for messages and the disclosure sheet."""
        return "[" + ", ".join(str(d) for d in self.shape) + "]"


def _check_half(
    half: str,
    specs: Sequence[TensorSpec],
    header: Mapping[str, tuple[str, tuple[int, ...]]],
    axes: dict[str, int],
) -> None:
    known = {spec.name for spec in specs}
    if unknown := sorted(set(header) - known):
        raise DataError(f"tensor {unknown[0]}: not named by the schema's {half} half, so it may not travel")
    if missing := sorted(known - set(header)):
        raise DataError(f"tensor {missing[0]}: named by the schema's {half} half but missing")
    for spec in specs:
        spec.check_header(*header[spec.name], axes)


@dataclass(frozen=True, slots=True)
class Schema:
    """What a contribution of one exchange may hold: the coordinator's parser, the node's egress allow-list and the
    privacy officer's disclosure sheet at once. A tensor it does not name cannot leave."""

    summed: tuple[TensorSpec, ...] = ()
    released: tuple[TensorSpec, ...] = ()

    def __post_init__(self) -> None:
        for half in (self.summed, self.released):
            roles = [spec.role for spec in half if spec.role != "value"]
            if len(set(roles)) != len(roles):
                raise ValueError(f"a role twice in one half of a schema: {sorted(roles)}")

    def of_role(self, half: Literal["summed", "released"], role: Role) -> TensorSpec | None:
        """The one tensor of ``half`` with ``role``, or ``None``; a half has a role once (``value`` aside)."""
        return next((spec for spec in getattr(self, half) if spec.role == role), None)

    @property
    def max_nbytes(self) -> int:
        """The most bytes of tensor data that a contribution can have."""
        return sum(spec.max_nbytes for spec in (*self.summed, *self.released))

    def check_headers(self, summed: Header, released: Header) -> None:
        """Check names, dtypes and shapes of both halves. Raises ``DataError`` naming the tensor."""
        axes: dict[str, int] = {}
        _check_half("summed", self.summed, summed, axes)
        _check_half("released", self.released, released, axes)

    def check(self, contribution: Contribution) -> None:
        """Check headers, then values. Raises ``DataError`` naming the tensor."""
        self.check_headers(contribution.summed.header(), contribution.released.header())
        for spec in self.summed:
            spec.check_values(contribution.summed[spec.name])
        for spec in self.released:
            spec.check_values(contribution.released[spec.name])


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a node sends in one exchange."""

    summed: Tensors = field(default_factory=Tensors)
    released: Tensors = field(default_factory=Tensors)
