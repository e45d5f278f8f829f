"""One cell of a table -> the numbers a model sees, by the plan's column: so that all nodes encode alike.

A numeric column becomes ``(value - mean) / std`` (and, with ``missing = "indicator"``, a second feature: 1 where the
value is missing); a categorical column becomes one feature a level, 1 for the level that the cell names. A fault is
described without the cell's text: a record's values stay out of messages and logs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedsecure.data.classes import canonical
from fedsecure.data.files import listed, shown
from fedsecure.errors import DataError
from fedsecure.plan.task import CategoricalColumn, NumericColumn, TableTask
from fedsecure.tensors import Array

__all__ = ["CategoricalEncoder", "CellFault", "NumericEncoder", "feature_bounds"]

#: ASCII digits with a point; what ``float`` takes besides (``nan``, ``1_000``, other scripts' digits) is no
#: measurement.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_NOT_RECORDED = "not recorded, which the plan's column refuses"


class CellFault(Exception):
    """What is wrong with a cell, in words, without its text."""


@dataclass(frozen=True, slots=True)
class NumericEncoder:
    """Encodes cells of one numeric column. ``missing``: the tokens that mean "not recorded"; ``decimal``: ``.`` or
    ``,``."""

    column: NumericColumn
    missing: frozenset[str]
    decimal: str

    def encode(self, cell: str) -> tuple[float, ...]:
        """The features of ``cell``. Raises ``CellFault``: missing though refused, not a number, out of range."""
        column = self.column
        if cell in self.missing:
            if column.missing == "refuse":
                raise CellFault(_NOT_RECORDED)
            return (0.0, 1.0) if column.missing == "indicator" else (0.0,)
        text = cell if self.decimal == "." else cell.replace(".", "?").replace(",", ".")
        if not _NUMBER.fullmatch(text):
            raise CellFault(self._not_a_number(cell))
        value = float(text)
        if not column.low <= value <= column.high:
            raise CellFault(f"outside {column.low:g}..{column.high:g}")
        scaled = (value - column.mean) / column.std
        return (scaled, 0.0) if column.missing == "indicator" else (scaled,)

    def _not_a_number(self, cell: str) -> str:
        other = "," if self.decimal == "." else "."
        if cell.count(other) == 1 and _NUMBER.fullmatch(cell.replace(other, ".")):
            return f"not a number with decimal '{self.decimal}' (it has a '{other}')"
        return "not a number"


class CategoricalEncoder:
    """Encodes cells of one categorical column. ``mapping``: the file's values -> the plan's levels; the rest stand
    for themselves.

    A level's own name wins over a ``missing`` token that is spelled alike, but not over one of ``own_missing``, the
    tokens of this very column. ``place``: as of ``Table``. Raises ``DataError`` when ``mapping`` leads to an unknown
    level, or maps one of ``own_missing``.
    """

    def __init__(
        self,
        column: CategoricalColumn,
        mapping: Mapping[str, str],
        missing: frozenset[str],
        own_missing: frozenset[str],
        where: str,
        place: str = "",
    ) -> None:
        self.column = column
        self._missing = missing
        index = {canonical(level): i for i, level in enumerate(column.levels)}
        if len(index) < len(column.levels):
            raise DataError(f"{where}: column {shown(column.name)}: two of the plan's levels compare equal as text")
        if wrong := sorted({level for level in mapping.values() if canonical(level) not in index}):
            raise DataError(
                f"{where}: levels.{shown(column.name)} maps to {listed(wrong)}, not among the plan's levels "
                f"{listed(column.levels, 20)}",
                hint=f"the right-hand side of levels{place} is the plan's name",
            )
        lost = {canonical(token) for token in own_missing}
        if both := sorted(own for own in mapping if canonical(own) in lost):
            raise DataError(
                f"{where}: column {shown(column.name)}: {listed(both)} in levels and in missing_values",
                hint=f"keep it in one of the two{place}",
            )
        every = {**index, **{canonical(own): index[canonical(level)] for own, level in mapping.items()}}
        self._index = {name: place for name, place in every.items() if name not in lost}

    def encode(self, cell: str) -> tuple[float, ...]:
        """The features of ``cell``. Raises ``CellFault``: missing though refused, or not one of the levels."""
        features = [0.0] * self.column.width
        place = self._index.get(canonical(cell))
        if place is None:
            if cell not in self._missing:
                raise CellFault("not one of the plan's levels")
            if self.column.missing == "refuse":
                raise CellFault(_NOT_RECORDED)
            place = len(self.column.levels) if self.column.missing == "level" else None
        if place is not None:
            features[place] = 1.0
        return tuple(features)


def feature_bounds(task: TableTask) -> tuple[Array, Array]:
    """The least and the greatest value that each encoded feature can have, float32 (features,) each.

    Raises ``DataError`` when a column's scale leaves no finite float32.
    """
    low: list[float] = []
    high: list[float] = []
    for column in task.columns:
        if isinstance(column, CategoricalColumn):
            low += [0.0] * column.width
            high += [1.0] * column.width
            continue
        ends = [(end - column.mean) / column.std for end in (column.low, column.high)]
        if not all(math.isfinite(end) and abs(end) <= float(np.finfo(np.float32).max) for end in ends):
            raise DataError(
                f"column {shown(column.name)}: low and high are no finite numbers once scaled by mean and std"
            )
        if column.missing != "refuse":  # a missing value becomes the mean, wherever that lies
            ends = [min(ends[0], 0.0), max(ends[1], 0.0)]
        low += [ends[0], 0.0][: column.width]
        high += [ends[1], 1.0][: column.width]
    return np.asarray(low, dtype=np.float32), np.asarray(high, dtype=np.float32)
