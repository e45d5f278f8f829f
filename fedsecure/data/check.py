"""A node's records against the plan, before it says that it is ready. The report stays on the node."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsecure.data.columns import feature_bounds
from fedsecure.data.files import listed, shown
from fedsecure.errors import DataError
from fedsecure.plan.methods import CondensationSettings
from fedsecure.plan.task import TableTask
from fedsecure.text import counted

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.plan import Plan
    from fedsecure.tensors import Array

__all__ = ["DataReport", "check_dataset"]

#: Records looked at in one step (memory of intermediate results).
_CHUNK = 4096
#: Classes named in one line of the report; the rest are counted.
_MOST_NAMES = 50


def _few(items: Iterable[str]) -> str:
    """Items in a row, the first fifty of them."""
    everything = list(items)
    rest = len(everything) - _MOST_NAMES
    return ", ".join(everything[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True, slots=True)
class DataReport:
    """What the check found. It says what an institution holds, so it stays on the node.

    ``counts``: records of each class of the plan. ``floor``: records below which a class is not held (1 for methods
    without a floor). ``held``, ``below_floor``, ``absent``: names of classes. ``low``, ``high``: least and greatest
    value of ``x``. ``constant``: records whose values are all equal. ``duplicates``: records equal to an earlier one
    in values and label. ``contradictions``: records equal to an earlier one in values but not in label. ``warnings``:
    what a person should look at, in words.
    """

    plan: str
    records: int
    shape: tuple[int, ...]
    counts: dict[str, int]
    floor: int
    held: tuple[str, ...]
    below_floor: tuple[str, ...]
    absent: tuple[str, ...]
    low: float
    high: float
    constant: int
    duplicates: int
    contradictions: int
    warnings: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report in words, one fact a line."""
        by_class = _few([f"{shown(name)}: {n}" for name, n in self.counts.items() if n])
        return [
            f"{counted(self.records, 'record')} of shape {list(self.shape)}, values {self.low:g} to {self.high:g}",
            f"records by class: {by_class}",
            f"classes that take part ({len(self.held)} of {len(self.counts)}): {_few(map(shown, self.held))}",
            *([f"classes not held here: {_few(map(shown, self.absent))}"] if self.absent else []),
            *(f"warning: {text}" for text in self.warnings),
        ]

    def to_json(self) -> dict[str, Any]:
        """The same as plain values, keys as the attributes."""
        plain = asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}


def check_dataset(data: Dataset, plan: Plan) -> DataReport:
    """Compare ``data`` with what ``plan`` asks for.

    Raises ``DataError`` when the node cannot take part: no records, another shape, other class names, values that are
    not finite or out of the plan's range, or no class with as many records as the method's floor.
    """
    if not len(data):
        raise DataError("the data set is empty", hint="check the path and the ignore list of the source")
    _check_kind(data, plan)
    low, high = _check_values(data.x, plan)
    exact = plan.privacy is None  # the floor of a private plan is held against noisy counts, not against these
    floor = plan.method.min_count if isinstance(plan.method, CondensationSettings) and exact else 1
    counts = dict(zip(data.classes, data.counts().tolist(), strict=True))
    held = tuple(name for name, n in counts.items() if n >= floor)
    if not held:
        raise DataError(
            f"no class has {floor} records (method.min_count), so the node would have nothing to contribute: "
            + _few([f"{shown(name)}: {n}" for name, n in counts.items() if n]),
            hint="take part with more records; a class with fewer says too much about each of them",
        )
    constant, duplicates, contradictions = _oddities(data)
    report = DataReport(
        plan=plan.digest(),
        records=len(data),
        shape=data.x.shape[1:],
        counts=counts,
        floor=floor,
        held=held,
        below_floor=tuple(name for name, n in counts.items() if 0 < n < floor),
        absent=tuple(name for name, n in counts.items() if n == 0),
        low=low,
        high=high,
        constant=constant,
        duplicates=duplicates,
        contradictions=contradictions,
    )
    return replace(report, warnings=tuple(_warnings(plan, report)))


def _check_kind(data: Dataset, plan: Plan) -> None:
    task = plan.task
    if data.x.shape[1:] != task.feature_shape:
        raise DataError(f"records of shape {list(data.x.shape[1:])} where the plan asks for {list(task.feature_shape)}")
    if data.classes != task.classes:
        raise DataError(
            f"the records were read for classes {listed(data.classes, 20)}; the plan has {listed(task.classes, 20)}",
            hint="read it again for this plan",
        )


def _check_values(x: Array, plan: Plan) -> tuple[float, float]:
    """Least and greatest value. Raises ``DataError`` naming the first record that is not finite, or out of range."""
    table = isinstance(plan.task, TableTask)
    least, most = feature_bounds(plan.task) if isinstance(plan.task, TableTask) else (np.float32(0), np.float32(1))
    low, high = np.inf, -np.inf
    for start in range(0, len(x), _CHUNK):
        part = x[start : start + _CHUNK]  # (b, *shape)
        flat = (len(part), -1)
        finite = np.isfinite(part).reshape(flat).all(axis=1)  # (b,)
        if not finite.all():
            raise DataError(f"record {start + int(np.argmin(finite))} holds values that are not finite")
        inside = ((part >= least) & (part <= most)).reshape(flat).all(axis=1)  # (b,)
        if not inside.all():
            bounds = "the plan's range of a column" if table else "[0, 1]"
            raise DataError(
                f"record {start + int(np.argmin(inside))} has values outside {bounds}",
                hint="encode it by the plan's columns" if table else "scale pixels to [0, 1]",
            )
        low, high = min(low, float(part.min())), max(high, float(part.max()))
    return low, high


def _oddities(data: Dataset) -> tuple[int, int, int]:
    """Numbers of constant records, of duplicates and of contradictions."""
    constant = duplicates = contradictions = 0
    seen: dict[bytes, set[int]] = {}
    for record, label in zip(data.x, data.y.tolist(), strict=True):
        constant += bool((record == record.flat[0]).all())
        labels = seen.setdefault(hashlib.sha256(record.tobytes()).digest(), set())
        duplicates += label in labels
        contradictions += bool(labels) and label not in labels
        labels.add(label)
    return constant, duplicates, contradictions


def _warnings(plan: Plan, report: DataReport) -> Iterator[str]:
    if report.below_floor:
        which = _few([f"{shown(name)} ({report.counts[name]})" for name in report.below_floor])
        yield f"classes below the floor of {report.floor} records, of which nothing is condensed or averaged: {which}"
    ipc = plan.method.ipc if isinstance(plan.method, CondensationSettings) else 0
    if scarce := [name for name in report.held if report.counts[name] <= ipc]:
        yield f"classes with no more records than the {ipc} condensed images made of them: {_few(map(shown, scarce))}"
    if len(report.held) == 1:
        yield f"one class only takes part: {shown(report.held[0])}"
    if report.low == report.high:
        yield "all values of all records are equal"
    elif report.constant and not isinstance(plan.task, TableTask):
        yield f"{counted(report.constant, 'record is', 'records are')} one constant value (blank pictures)"
    if report.duplicates:
        which = counted(report.duplicates, "record repeats", "records repeat")
        yield f"{which} an earlier record of the same class"
    if report.contradictions:
        which = counted(report.contradictions, "record equals", "records equal")
        yield f"{which} an earlier record of another class: check their labels"
