"""Means weighted by records: n times a parameter goes up, the quotient of the sums is the new one.

What FedAvg, FedSPM and FedDRM have in common. Tensors travel as float32 in ``summed``, beside ``records`` = n.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsecure.data.dataset import Dataset
from fedsecure.errors import DataError
from fedsecure.method import ClientContext
from fedsecure.parameter_specs import PARAMETER_BOUND
from fedsecure.schema import TensorSpec
from fedsecure.tensors import Array, Tensors

__all__ = [
    "MAX_RECORDS",
    "RECORDS",
    "check_records",
    "check_trained",
    "means",
    "record_count",
    "weighted",
    "weighted_specs",
]

#: No node holds more records than this (bounds the range of n * w).
MAX_RECORDS = 10_000_000
#: n, which every contribution carries.
RECORDS = TensorSpec("records", "int64", (1,), 0, MAX_RECORDS, "number of records", "records")


def record_count(data: Dataset, ctx: ClientContext) -> int:
    """n, by which a node's parameters weigh: its records, and with differential privacy those of classes that take no
    part, too, since how many these are is not public."""
    return len(data) if ctx.privacy is None else ctx.privacy.records


def check_records(count: int) -> None:
    """Raise ``DataError`` when a node has more records than the ranges of ``weighted_specs`` allow for."""
    if count > MAX_RECORDS:
        raise DataError(f"data: {count} records are more than {MAX_RECORDS}")


def weighted_specs(specs: Sequence[TensorSpec], prefix: str = "") -> tuple[TensorSpec, ...]:
    """The specs of n * parameter, each renamed to ``prefix`` and its name."""
    bound = PARAMETER_BOUND * MAX_RECORDS
    return tuple(
        TensorSpec(f"{prefix}{s.name}", "float32", s.shape, -bound, bound, f"{s.what} times the records") for s in specs
    )


def check_trained(specs: Sequence[TensorSpec], trained: Tensors) -> None:
    """Raise ``DataError`` when a trained parameter is not finite or out of its range."""
    for spec in specs:
        try:
            spec.check_values(trained[spec.name])
        except DataError as error:
            raise DataError(f"training diverged: {error}", hint="lower the plan's learning rate") from None


def weighted(specs: Sequence[TensorSpec], trained: Tensors, count: int, prefix: str = "") -> dict[str, Array]:
    """What a node with ``count`` records sends: n * parameter, float32, and ``records``."""
    sent: dict[str, Array] = {
        f"{prefix}{s.name}": (trained[s.name] * np.float32(count)).astype(np.float32) for s in specs
    }
    return {**sent, RECORDS.name: np.array([count], dtype=np.int64)}


def means(specs: Sequence[TensorSpec], summed: Tensors, prefix: str = "") -> dict[str, Array]:
    """The new parameters, float32, from the cohort's sums. Raises ``DataError`` when no node has any record, or for a
    mean out of range."""
    total = int(summed[RECORDS.name][0])
    if total <= 0:
        raise DataError("tensor records: no node of the cohort has any record")
    new = {s.name: (summed[f"{prefix}{s.name}"].astype(np.float64) / total).astype(np.float32) for s in specs}
    for spec in specs:
        spec.check_values(new[spec.name])
    return new
