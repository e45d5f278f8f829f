"""A CSV table -> encoded rows and labels, by the plan's columns.

Columns that neither the plan nor the source names are never looked at. Every fault names the file, the line and the
column, and never the text of a cell.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedsecure.data.classes import IGNORED, UNKNOWN, ClassNames
from fedsecure.data.columns import CategoricalEncoder, CellFault, NumericEncoder, feature_bounds
from fedsecure.data.csv_rows import Table, open_table, rows
from fedsecure.data.files import check_memory, composed, listed, shown
from fedsecure.data.records import labelled
from fedsecure.errors import DataError
from fedsecure.plan.task import CategoricalColumn, TableTask
from fedsecure.tensors import Array

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.data.settings import CsvSource
    from fedsecure.plan.task import Task

__all__ = ["load_rows", "load_table", "load_table_by"]

#: Faults named in one message; the rest are counted.
MOST_FAULTS = 3
#: Rows between two looks at how much memory they take.
_MEMORY_STEP = 10_000


@dataclass(slots=True)
class _Reading:
    """What was read so far."""

    features: array[float] = field(default_factory=lambda: array("f"))
    index: array[int] = field(default_factory=lambda: array("q"))
    places: array[int] = field(default_factory=lambda: array("q"))
    groups: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    fault_count: int = 0

    def fault(self, text: str) -> None:
        self.fault_count += 1
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(text)


@dataclass(frozen=True, slots=True)
class _Cell:
    """A column to read: where it stands, what messages call it, how its cells are encoded."""

    position: int
    name: str
    encode: Callable[[str], tuple[float, ...]]


def load_table(source: CsvSource, task: Task) -> Dataset:
    """Rows (n, features) in the order of the file; see ``fedsecure.data.columns`` for the encoding.

    Raises ``DataError``: no header line, columns missing or named twice, rows of another length, cells that are
    missing, no numbers, out of range or unknown levels, labels that are no class, wrong quoting, another encoding.
    """
    return _load(source, task, None)[0]


def load_table_by(source: CsvSource, task: Task, column: str) -> tuple[Dataset, list[str]]:
    """``load_table``, and the text that each record has in ``column`` of the file (a hospital, a region)."""
    return _load(source, task, column)


def load_rows(source: CsvSource, task: Task, *, place: str = "") -> tuple[Array, list[int]]:
    """Rows without labels, float32 (n, features), and the line of the file that each begins in; ``source.label`` is not
    looked at. Raises as ``load_table`` does, but for labels; hints name ``place``, where the keys of ``source`` are
    set."""
    table, task, cells = _open(source, task, place)
    reading, lines = _Reading(), []
    for line, row in rows(table):
        if _read_row(reading, line, row, table, cells):
            lines.append(line)
        if len(lines) % _MEMORY_STEP == 0:
            check_memory(table.where, len(lines), task.feature_shape)
    _raise_faults(reading, table, task, classes=False)
    if not lines:
        raise DataError(f"{table.where}: holds no records", hint="check the path")
    return _features(reading, task), lines


def _open(source: CsvSource, task: Task, place: str = "") -> tuple[Table, TableTask, list[_Cell]]:
    if not isinstance(task, TableTask):
        raise DataError(f"{shown(source.path)}: a table, but the plan's records are pictures")
    feature_bounds(task)
    table = open_table(source.path, source.encoding, source.delimiter, place)
    return table, task, _cells(source, task, table)


def _features(reading: _Reading, task: TableTask) -> Array:
    return np.frombuffer(reading.features, dtype=np.float32).reshape(-1, *task.feature_shape).copy()  # (n, features)


def _load(source: CsvSource, task: Task, group: str | None) -> tuple[Dataset, list[str]]:
    table, task, cells = _open(source, task)
    names = ClassNames(source.classes, source.ignore, task.classes, table.where)
    label = _label_position(source, table, cells)
    grouped = None if group is None else table.position(group, "simulation.partition.column")
    reading = _Reading()
    missing = frozenset(token.strip() for token in source.missing)
    for number, (line, row) in enumerate(rows(table)):
        _read_labelled(reading, line, row, table, names, cells, label)
        if len(reading.index) > len(reading.places):
            reading.places.append(number)
        if grouped is not None and len(reading.index) > len(reading.groups):
            _read_group(reading, line, row[grouped], missing, str(group))
        if len(reading.index) % _MEMORY_STEP == 0:
            check_memory(table.where, len(reading.index), task.feature_shape)
    _raise_faults(reading, table, task)
    y = np.frombuffer(reading.index, dtype=np.int64)  # (n,)
    places = np.frombuffer(reading.places, dtype=np.int64)  # (n,)
    return labelled(table.where, _features(reading, task), y, task, places), reading.groups


def _cells(source: CsvSource, task: TableTask, table: Table) -> list[_Cell]:
    known = {composed(column.name): column for column in task.columns}
    if len(known) < len(task.columns):
        raise DataError(f"{table.where}: two of the plan's columns compare equal as text")
    columns = {composed(name): own for name, own in source.columns.items()}
    levels = {composed(name): values for name, values in source.levels.items()}
    missing_values = {composed(name): values for name, values in source.missing_values.items()}
    named = {"columns": {*columns}, "levels": {*levels}, "missing_values": {*missing_values}}
    for key, names in named.items():
        if unknown := sorted(names - set(known)):
            raise DataError(
                f"{table.where}: {key} names {listed(unknown)}, not among the plan's columns {listed(known, 20)}",
                hint=f"the left-hand side of {key}{table.place} is the plan's name of a column",
            )
    if numeric := [name for name in levels if not isinstance(known[name], CategoricalColumn)]:
        raise DataError(
            f"{table.where}: levels names {listed(numeric)}, which the plan has as numeric",
            hint=f"take them out of levels{table.place}",
        )
    absent = [n for n in known if composed(columns.get(n, n)) not in table.header]
    if len(absent) > 1:
        raise DataError(
            f"{table.where}: line {table.line}: no columns {listed(columns.get(n, n) for n in absent)}",
            hint=table.header_hint()
            or f"map the plan's names to the file's with columns{table.place}; is the delimiter "
            f"'{shown(source.delimiter)}'?",
        )
    cells: list[_Cell] = []
    for name, column in known.items():
        own_missing = frozenset(token.strip() for token in missing_values.get(name, ()))
        missing = own_missing | {token.strip() for token in source.missing}
        if isinstance(column, CategoricalColumn):
            encode = CategoricalEncoder(
                column, levels.get(name, {}), missing, own_missing, table.where, table.place
            ).encode
        else:
            encode = NumericEncoder(column, missing, source.decimal).encode
        own = columns.get(name, name)
        cells.append(_Cell(table.position(own, f"the plan's column '{shown(name)}'"), shown(own), encode))
    return cells


def _label_position(source: CsvSource, table: Table, cells: list[_Cell]) -> int:
    position = table.position(source.label, "label")
    used = [position, *(cell.position for cell in cells)]
    if len(set(used)) != len(used):
        twice = next(table.header[i] for i in used if used.count(i) > 1)
        raise DataError(
            f"{table.where}: column '{shown(twice)}' is used twice",
            hint="a label must not be a feature, nor a feature two",
        )
    return position


def _read_labelled(
    reading: _Reading, line: int, row: list[str], table: Table, names: ClassNames, cells: list[_Cell], label: int
) -> None:
    """Append one record and its label, or its faults. A record whose label is ignored is not looked at further."""
    index = names.index(row[label]) if len(row) == len(table.header) else UNKNOWN
    if index == IGNORED:
        return
    if index == UNKNOWN and len(row) == len(table.header):
        reading.fault(f"line {line}, column {shown(table.header[label])}: not one of the plan's classes")
    if _read_row(reading, line, row, table, cells, keep=index != UNKNOWN):
        reading.index.append(index)


def _read_row(
    reading: _Reading, line: int, row: list[str], table: Table, cells: list[_Cell], *, keep: bool = True
) -> bool:
    """Append the features of one record, or its faults; says whether they were appended."""
    if len(row) != len(table.header):
        reading.fault(f"line {line}: {len(row)} cells where the header line has {len(table.header)}")
        return False
    before, features = reading.fault_count, array("f")
    for cell in cells:
        try:
            features.extend(cell.encode(row[cell.position]))
        except CellFault as fault:
            reading.fault(f"line {line}, column {cell.name}: {fault}")
    if not keep or reading.fault_count > before:
        return False
    reading.features.extend(features)
    return True


def _read_group(reading: _Reading, line: int, value: str, missing: frozenset[str], column: str) -> None:
    if value in missing:
        reading.fault(f"line {line}, column {shown(column)}: not recorded, so the record belongs to no node")
    reading.groups.append(value)


def _raise_faults(reading: _Reading, table: Table, task: TableTask, *, classes: bool = True) -> None:
    if not reading.faults:
        return
    rest = reading.fault_count - len(reading.faults)
    keys = f"missing, missing_values, levels{', classes, ignore' if classes else ''} or decimal{table.place}"
    hint = f"correct the file, or say with {keys} what its cells mean"
    if classes and any("classes" in fault for fault in reading.faults):
        hint = f"map each label to one of {listed(task.classes, 20)} in classes, or list it in ignore"
    raise DataError(f"{table.where}: " + "; ".join(reading.faults) + (f"; and {rest} more" if rest else ""), hint=hint)
