"""Dealing records out over the nodes of a simulation.

Every index is dealt exactly once, and everything is a function of the records and the seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsecure.data import load_dataset
from fedsecure.data.by_value import column_partition
from fedsecure.data.dealt import Dealt, joined
from fedsecure.data.dirichlet import dirichlet_partition
from fedsecure.data.holdout import holdout_index
from fedsecure.data.settings import ColumnPartition, SourcesPartition
from fedsecure.errors import ConfigError, DataError
from fedsecure.randomness import numpy_generator

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.data.settings import AnySource, Simulation
    from fedsecure.plan.task import Task

__all__ = ["Dealt", "deal", "known_nodes"]

Index = npt.NDArray[np.int64]
#: Node id -> positions in the records.
Parts = dict[str, Index]


def deal(simulation: Simulation, task: Task, seed: int) -> Dealt:
    """The nodes' records by node id, in the order of the ids, and the test records.

    With ``holdout = "pooled"`` test records are held out first, then ``limit`` is drawn and the rest is dealt out;
    with ``"per_node"`` ``limit`` is drawn, everything is dealt out, and each node holds out some of its own. Either
    way no node trains on a test record. Raises ``DataError`` or ``ConfigError`` naming what is wrong with a source or
    the partition.
    """
    if simulation.partition.kind == "dual-heterogeneity":
        from fedsecure.data.dual import deal_dual

        return deal_dual(simulation, task, seed)[0]
    data, members = _load(simulation, task)
    if simulation.holdout == "per_node":
        return _deal_per_node(simulation, data, members, seed)
    if simulation.test is not None:
        test, rest = load_dataset(simulation.test, task), np.arange(len(data), dtype=np.int64)
    else:
        rest, out = holdout_index(data.y, len(data.classes), simulation.test_fraction, seed)
        test = data.subset(out)
    parts = _parts(simulation, data, members, _limited(rest, simulation.limit, seed), seed)
    return Dealt({node: data.subset(index) for node, index in parts.items()}, test)


def known_nodes(simulation: Simulation) -> tuple[str, ...] | None:
    """The ids of the nodes that ``deal`` would deal to, as far as the settings alone say; ``None`` where the records
    do."""
    match simulation.partition:
        case SourcesPartition(nodes=nodes):
            return tuple(sorted(nodes))
        case ColumnPartition():
            return None
        case partition:
            return _numbered(partition.nodes)


def _numbered(count: int) -> tuple[str, ...]:
    width = len(str(count))
    return tuple(f"node-{k:0{width}d}" for k in range(1, count + 1))


def _deal_per_node(simulation: Simulation, data: Dataset, members: Parts | None, seed: int) -> Dealt:
    everything = _limited(np.arange(len(data), dtype=np.int64), simulation.limit, seed)
    train, tests = {}, {}
    for node, index in _parts(simulation, data, members, everything, seed).items():
        try:
            rest, out = holdout_index(data.y[index], len(data.classes), simulation.test_fraction, seed, node)
        except DataError as error:
            raise DataError(f"node {node}: {error}", hint="deal it more records, or set holdout = 'pooled'") from None
        train[node], tests[node] = data.subset(index[rest]), data.subset(index[out])
    return Dealt.per_node(train, tests)


def _limited(index: Index, limit: int | None, seed: int) -> Index:
    """At most ``limit`` of the positions, drawn at random, in their order."""
    if limit is None or limit >= len(index):
        return index
    drawn = numpy_generator(seed, "partition", "limit").choice(len(index), limit, replace=False)
    return index[np.sort(drawn)]


def _load(simulation: Simulation, task: Task) -> tuple[Dataset, Parts | None]:
    """The records, and whose they are where the partition does not draw that."""
    partition = simulation.partition
    if partition.kind == "sources":
        return _load_sources(partition, task)
    source = _source(simulation)
    if partition.kind != "column":
        return load_dataset(source, task), None
    if source.kind != "csv":
        raise ConfigError(
            f"simulation.partition.kind 'column' needs a table, not simulation.data.kind '{source.kind}'",
            hint="allowed: 'csv' for data, or 'dirichlet' for the partition",
        )
    from fedsecure.data.table import load_table_by

    data, values = load_table_by(source, task, partition.column)
    return data, column_partition(values)


def _source(simulation: Simulation) -> AnySource:
    if simulation.data is None:
        raise ConfigError(f"simulation.data is missing, which partition.kind '{simulation.partition.kind}' deals out")
    return simulation.data


def _load_sources(partition: SourcesPartition, task: Task) -> tuple[Dataset, Parts]:
    """Every node's own records, one behind the other in the order of the node ids."""
    loaded: dict[str, Dataset] = {}
    for node, source in sorted(partition.nodes.items()):
        try:
            loaded[node] = load_dataset(source, task)
        except DataError as error:
            raise DataError(f"node {node}: {error}", hint=error.hint) from None
    cuts = np.cumsum([len(data) for data in loaded.values()])
    members = np.split(np.arange(cuts[-1], dtype=np.int64), cuts[:-1])
    return joined(list(loaded.values())), dict(zip(loaded, members, strict=True))


def _parts(simulation: Simulation, data: Dataset, members: Parts | None, rest: Index, seed: int) -> Parts:
    """Node id -> its positions in ``data``, all of them among ``rest``."""
    partition = simulation.partition
    if partition.kind == "dirichlet":
        parts = dirichlet_partition(
            data.y[rest], len(data.classes), partition.nodes, partition.alpha, partition.min_size, seed
        )
        return {node: rest[part] for node, part in zip(_numbered(partition.nodes), parts, strict=True)}
    kept = np.zeros(len(data), dtype=np.bool_)
    kept[rest] = True
    found = {node: index[kept[index]] for node, index in (members or {}).items()}
    if lost := [node for node, index in found.items() if not len(index)]:
        raise DataError(
            f"node {lost[0]}: all its records went to the test set or over the limit",
            hint="hold out less, raise limit, or name a source of test records",
        )
    return found
