"""Records: sources, checks against the plan, partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.data.settings import AnySource
    from fedsecure.plan.task import Task

__all__ = ["load_dataset"]


def load_dataset(source: AnySource, task: Task) -> Dataset:
    """Read all records of ``source`` and label them with the class names of ``task``.

    Records are float32 (n, \\*task.feature_shape): pixels in [0, 1], or encoded rows of a table. Labels are int64
    (n,) into ``task.classes``. The order is a function of the source alone (sorted paths, or file order). Nothing is
    downloaded, nothing is unpickled. Raises ``DataError`` naming the file, and the line and column where there are
    such; it never holds the value of a cell.
    """
    from fedsecure.data import settings
    from fedsecure.errors import DataError

    table = task.kind == "table"
    if table != isinstance(source, settings.CsvSource) and not (table and isinstance(source, settings.NpzSource)):
        raise DataError(
            f"a source of kind '{source.kind}' does not go with a plan whose task is of kind '{task.kind}'",
            hint="images: folder, npz, digits or torchvision; tables: csv or npz",
        )
    try:
        return _load(source, task)
    except MemoryError:
        raise DataError(
            f"the records of the source of kind '{source.kind}' do not fit into this machine's memory",
            hint="take part with fewer records, or on a larger machine",
        ) from None


def _load(source: AnySource, task: Task) -> Dataset:
    from fedsecure.data import settings

    if isinstance(source, settings.CsvSource):
        from fedsecure.data.table import load_table

        return load_table(source, task)
    if isinstance(source, settings.NpzSource):
        from fedsecure.data.npz import load_npz

        return load_npz(source, task)
    if isinstance(source, settings.FolderSource):
        from fedsecure.data.folder import load_folder

        return load_folder(source, task)
    if isinstance(source, settings.TorchvisionSource):
        from fedsecure.data.torchvision_sets import load_torchvision

        return load_torchvision(source, task)
    from fedsecure.data.digits import load_digits

    return load_digits(source, task)
