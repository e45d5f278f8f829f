"""Records that somebody asks about: without labels, each with a name by which its answer is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsecure.data.files import check_memory, readable, shown
from fedsecure.errors import DataError
from fedsecure.tensors import Array

if TYPE_CHECKING:
    from fedsecure.data.settings import CsvSource
    from fedsecure.plan.task import Task

__all__ = ["Reading", "Unlabelled", "load_unlabelled", "require_there"]


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read: the two changes that pictures may need, and how tables are written (path and label of
    ``table`` do not count). ``settings``: the file that says it, which hints name, in its tables ``[images]`` and
    ``[table]``."""

    table: CsvSource
    resize: bool = False
    grey: bool = False
    settings: str = "the settings"


@dataclass(frozen=True, slots=True)
class Unlabelled:
    """``x``: float32 (n, *shape), values as the plan's task ranges them. ``names``: one a record, as in ``scans.npz:3``
    (counted from 0), ``patients.csv:12`` (the line) or ``folder/scan.png``."""

    names: tuple[str, ...]
    x: Array


def require_there(paths: Sequence[Path]) -> None:
    """Raise ``DataError`` naming the first of ``paths`` that is missing or cannot be looked at."""
    for path in paths:
        with readable(path):
            path.stat()


def load_unlabelled(paths: Sequence[Path], task: Task, reading: Reading) -> Unlabelled:
    """The records of ``.npz`` archives (array ``x``), tables (``.csv``, for a task of kind table), pictures and folders
    of pictures, in the order given. Raises ``DataError`` naming the file, and never the value of a cell."""
    parts = [_load(path, task, reading) for path in paths]
    if not parts:
        raise DataError("no records are given", hint="name files or folders")
    check_memory("all records together", sum(len(p.x) for p in parts), task.feature_shape)
    names = tuple(name for part in parts for name in part.names)
    return Unlabelled(names, np.ascontiguousarray(np.concatenate([part.x for part in parts])))


def _load(path: Path, task: Task, reading: Reading) -> Unlabelled:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        from fedsecure.data.npz import load_records

        x = load_records(path, task)
        return Unlabelled(tuple(f"{shown(path)}:{i}" for i in range(len(x))), x)
    if task.kind == "table":
        from fedsecure.data.table import load_rows

        if suffix not in (".csv", ".tsv", ".txt", ".data"):
            raise DataError(
                f"{shown(path)}: the plan's records are rows of a table",
                hint="give a .csv with a header line, or a .npz",
            )
        x, lines = load_rows(
            reading.table.model_copy(update={"path": path}), task, place=f" in [table] of {reading.settings}"
        )
        return Unlabelled(tuple(f"{shown(path)}:{line}" for line in lines), x)
    from fedsecure.data.folder import load_pictures

    x, files = load_pictures(
        path, task, resize=reading.resize, grey=reading.grey, place=f"[images] of {reading.settings}"
    )
    return Unlabelled(tuple(shown(file) for file in files), x)
