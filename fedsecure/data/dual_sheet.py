"""A contact sheet of the dual-heterogeneity benchmark: the same records as every node and component has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsecure.data.dual import COMPONENTS, load_images, permutations, rendered
from fedsecure.data.grid import Grid, draw_grid
from fedsecure.data.shifts import node_words
from fedsecure.errors import DataError

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.data.settings import DualHeterogeneityPartition, Simulation
    from fedsecure.plan.task import ImageTask, Task
    from fedsecure.tensors import Array

__all__ = ["DualSheet", "dual_sheet"]

#: Least side of an image on the sheet (pixels): of many records, and of a single one.
MANY_SIDE, SINGLE_SIDE = 64, 112
_COMPONENT_1 = {"all": "inverted", "green": "green inv.", "none": "as it is"}


@dataclass(frozen=True, eq=False)
class DualSheet:
    """``png``; ``records``: positions in the source of those it shows; ``permutation``: (m, 2, num_classes), own label
    -> label given."""

    png: bytes
    records: tuple[int, ...]
    permutation: npt.NDArray[np.int64]


def dual_sheet(simulation: Simulation, task: Task, seed: int, title: str, record: int | None = None) -> DualSheet:
    """Draw the first record of each class, or ``record`` (its position in the source, from 0), under every node's and
    component's transform, with the label that it is given there.

    Raises ``ConfigError`` when the partition is another, ``DataError`` when there is no such record.
    """
    settings, image_task, data = load_images(simulation, task)
    given = permutations(len(data.classes), settings, seed)
    if record is not None and not 0 <= record < len(data):
        raise DataError(f"no record {record} among {len(data)}", hint=f"allowed: 0 to {len(data) - 1}")
    firsts = np.unique(data.y, return_index=True)[1]  # in the order of the classes
    index = firsts if record is None else np.asarray([record])
    images, labels = _everywhere(data, index, settings, image_task, given)
    every = range(settings.nodes)
    nodes = [[f"node-{i + 1}" for i in every], [node_words(i) for i in every]]
    components = ["as it is", _COMPONENT_1[settings.inversion]]
    names = [data.classes[label] for label in data.y[index]]
    if record is None:  # a row for each record, a column for each node and component
        flat = images.reshape(len(index), -1, *image_task.shape)
        heads = [*nodes, [f"0: {components[0]}", f"1: {components[1]}"] * settings.nodes]
        grid = Grid(
            f"{title}: one record of each class, and the label it is given",
            flat,
            [[data.classes[k] for k in row.flat] for row in labels],
            names,
            heads,
            MANY_SIDE,
        )
    else:  # a row for each component, a column for each node
        rows = [f"component {c}: {components[c]}" for c in range(COMPONENTS)]
        captions = [[data.classes[k] for k in labels[0, :, c]] for c in range(COMPONENTS)]
        title = f"{title}: record {record}, {names[0]}, and the label it is given"
        grid = Grid(title, images[0].swapaxes(0, 1), captions, rows, nodes, SINGLE_SIDE)
    return DualSheet(draw_grid(grid), tuple(int(i) for i in index), given)


def _everywhere(
    data: Dataset,
    index: npt.NDArray[np.int64],
    settings: DualHeterogeneityPartition,
    task: ImageTask,
    given: npt.NDArray[np.int64],
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Images (records, nodes, 2, 3, H, W) and the labels given to them (records, nodes, 2)."""
    images = [
        rendered(data.x[index], i, np.full(len(index), c), settings, task)
        for i in range(settings.nodes)
        for c in range(COMPONENTS)
    ]
    stacked = np.stack(images, axis=1).reshape(len(index), settings.nodes, COMPONENTS, *task.shape)
    return stacked, np.moveaxis(given[:, :, data.y[index]], 2, 0)
