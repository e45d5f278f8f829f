"""The dual-heterogeneity benchmark: who gets which record, as which component, under which labels (FedSPM page,
section 4).

Everything is drawn from streams of its own, so that one strength can be changed and the rest stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsecure.data.dataset import Dataset
from fedsecure.data.dealt import Dealt
from fedsecure.data.dirichlet import dirichlet_partition
from fedsecure.data.files import check_memory
from fedsecure.data.native import load_native
from fedsecure.data.shifts import component_shift, cropped, node_shift, three_channels
from fedsecure.errors import ConfigError, DataError
from fedsecure.plan.task import ImageTask
from fedsecure.randomness import numpy_generator

if TYPE_CHECKING:
    from fedsecure.data.settings import DualHeterogeneityPartition, Simulation
    from fedsecure.plan.task import Task
    from fedsecure.tensors import Array

__all__ = ["COMPONENTS", "DualDraw", "deal_dual", "draw_dual", "load_images", "permutations", "rendered"]

#: Latent components of a node.
COMPONENTS = 2

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DualDraw:
    """The ground truth of a deal of n records to m nodes.

    ``train``, ``test``: of each node the positions of its records, in the order in which ``Dealt`` holds them.
    ``client``: (n,) number of the node from 0, and ``component``: (n,) 0 or 1; both -1 where ``share`` leaves a record
    out. ``pi``: (m, 2) proportions of the components. ``permutation``: (m, 2, num_classes), own label -> label given.
    """

    train: tuple[Index, ...]
    test: tuple[Index, ...]
    client: Index
    component: Index
    pi: npt.NDArray[np.float64]
    permutation: Index


def draw_dual(y: Index, num_classes: int, settings: DualHeterogeneityPartition, seed: int) -> DualDraw:
    """Draw a deal of records with labels ``y``, int64 (n,). Raises ``DataError`` when there are too few."""
    n, m = len(y), settings.nodes
    used = np.arange(n, dtype=np.int64)
    if settings.share < 1:
        count = int(settings.share * n + 0.5)
        used = np.sort(numpy_generator(seed, "dual", "share").choice(n, count, replace=False))
    parts = dirichlet_partition(y[used], num_classes, m, settings.alpha_inter, settings.min_size, seed)
    pi = numpy_generator(seed, "dual", "pi").dirichlet(np.full(COMPONENTS, settings.alpha_intra), m)  # (m, 2)
    client, component = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    train, test = [], []
    for i, part in enumerate(parts):
        mine = used[part]
        client[mine] = i
        component[mine] = numpy_generator(seed, "dual", "component", i).random(len(mine)) >= pi[i, 0]
        mine = numpy_generator(seed, "dual", "shuffle", i).permutation(mine)
        held = min(max(int(settings.test_fraction * len(mine) + 0.5), 1), len(mine) - 1)
        train.append(mine[: len(mine) - held])
        test.append(mine[len(mine) - held :])
    return DualDraw(tuple(train), tuple(test), client, component, pi, permutations(num_classes, settings, seed))


def permutations(num_classes: int, settings: DualHeterogeneityPartition, seed: int) -> Index:
    """One uniform permutation of the labels for each node and component, int64 (m, 2, num_classes); the identity
    without ``permute_labels``."""
    each = [(i, c) for i in range(settings.nodes) for c in range(COMPONENTS)]
    if settings.permute_labels:
        drawn = [numpy_generator(seed, "dual", "permutation", i, c).permutation(num_classes) for i, c in each]
    else:
        drawn = [np.arange(num_classes) for _ in each]
    return np.asarray(drawn, dtype=np.int64).reshape(settings.nodes, COMPONENTS, num_classes)


def load_images(simulation: Simulation, task: Task) -> tuple[DualHeterogeneityPartition, ImageTask, Dataset]:
    """The partition's settings, the task, and all records at their own size (n, 1 or 3, h, w).

    Raises ``ConfigError`` when the plan's records are not images with three channels, ``DataError`` when the source's
    do not become such.
    """
    partition, source = simulation.partition, simulation.data
    if partition.kind != "dual-heterogeneity" or source is None:
        raise ConfigError(
            f"simulation.partition.kind is '{partition.kind}', which transforms no images",
            hint="allowed: 'dual-heterogeneity'",
        )
    if not isinstance(task, ImageTask) or task.shape[0] != 3:
        shape = f"not task.shape {list(task.shape)}" if isinstance(task, ImageTask) else "not a table"
        raise ConfigError(
            f"simulation.partition.kind 'dual-heterogeneity' needs images with 3 channels, {shape}",
            hint="set task.shape = [3, height, width]; grey images are repeated over the channels",
        )
    data = load_native(source, task, pool_splits=partition.pool_splits)
    if data.x.shape[1] not in (1, 3):
        raise DataError(f"images of {data.x.shape[1]} channels do not become 3 channels (allowed: 1 or 3)")
    check_memory("the records of all nodes", len(data), task.shape)
    return partition, task, data


def rendered(
    x: Array,
    client: int,
    component: Index,
    settings: DualHeterogeneityPartition,
    task: ImageTask,
    crop: np.random.Generator | None = None,
) -> Array:
    """Images (n, 1 or 3, h, w) as node number ``client`` holds them, (n, 3, H, W): resampled, cropped where ``crop``
    draws the boxes, then the component's transform, then the node's. ``component``: (n,)."""
    _, height, width = task.shape
    full = three_channels(x, height, width)
    if crop is not None:
        full = cropped(full, settings.crop, crop)
    return node_shift(component_shift(full, component, settings.inversion), client, settings.gain, settings.ramp)


def deal_dual(simulation: Simulation, task: Task, seed: int) -> tuple[Dealt, DualDraw]:
    """The records of ``node-1`` … and the ground truth behind them. Raises as ``load_images`` and ``draw_dual``."""
    settings, image_task, data = load_images(simulation, task)
    draw = draw_dual(data.y, len(data.classes), settings, seed)

    def held(i: int, index: Index, crop: np.random.Generator | None) -> Dataset:
        component = draw.component[index]  # (n_i,)
        x = rendered(data.x[index], i, component, settings, image_task, crop)
        return Dataset(x, draw.permutation[i, component, data.y[index]], data.classes)

    names = [f"node-{i + 1}" for i in range(settings.nodes)]
    train = {
        node: held(i, draw.train[i], numpy_generator(seed, "dual", "crop", i) if settings.crop < 1 else None)
        for i, node in enumerate(names)
    }
    return Dealt.per_node(train, {node: held(i, draw.test[i], None) for i, node in enumerate(names)}), draw
