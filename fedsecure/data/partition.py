"""Dealing one data set out over the nodes of a simulation.

Every index is dealt exactly once, and everything is a function of the records and the seed.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsecure.data import load_dataset
from fedsecure.errors import ConfigError, DataError
from fedsecure.randomness import numpy_generator

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.data.settings import Simulation
    from fedsecure.plan.task import Task

__all__ = ["column_partition", "deal", "dirichlet_partition", "holdout", "node_names"]

Index = npt.NDArray[np.int64]

#: Deals tried before the setting is called impossible. FedAF page, 3.1: up to 5 were needed at alpha = 0.02.
MAX_DEALS = 1000
#: More nodes than this no plan's cohort takes.
MAX_NODES = 1000
#: Longest node id (characters), as of a DNS label.
_MAX_ID = 63


def dirichlet_partition(y: Index, num_classes: int, nodes: int, alpha: float, min_size: int, seed: int) -> list[Index]:
    """Class by class, proportions over the nodes drawn from Dirichlet(``alpha``) (FedAF page, section 3.1).

    A node that already holds n / ``nodes`` records or more when a class is dealt gets none of it; everything is
    redealt until each node has ``min_size`` records. ``y``: int64 (n,). Returns the indices of each node, int64
    (n_k,). Raises ``DataError`` when there are too few records, or ``MAX_DEALS`` deals did not suffice.
    """
    if not (nodes >= 1 and alpha > 0 and min_size >= 0):
        raise DataError(f"cannot deal to {nodes} nodes with alpha {alpha:g} and min_size {min_size}")
    if nodes * min_size > len(y):
        raise DataError(
            f"{len(y)} records cannot give {nodes} nodes at least {min_size} each", hint="lower nodes or min_size"
        )
    rng = numpy_generator(seed, "partition", "dirichlet")
    for _ in range(MAX_DEALS):
        parts = _deal_once(y, num_classes, nodes, alpha, rng)
        if parts is not None and min(len(part) for part in parts) >= min_size:
            return parts
    raise DataError(
        f"{MAX_DEALS} deals with alpha {alpha:g} leave one of {nodes} nodes fewer than {min_size} of {len(y)} records",
        hint="raise alpha, or lower nodes or min_size",
    )


def _deal_once(y: Index, num_classes: int, nodes: int, alpha: float, rng: np.random.Generator) -> list[Index] | None:
    """One deal; ``None`` when a draw is degenerate (every node that may still receive drew nothing)."""
    dealt: list[list[Index]] = [[] for _ in range(nodes)]
    sizes = np.zeros(nodes, dtype=np.int64)
    for c in range(num_classes):
        index = rng.permutation(np.flatnonzero(y == c))  # (n_c,)
        share = rng.dirichlet(np.full(nodes, alpha)) * (sizes * nodes < len(y))  # (nodes,)
        total = np.cumsum(share)
        if not len(index):
            continue
        if not (np.isfinite(total[-1]) and total[-1] > 0):
            return None
        cuts = np.floor(total[:-1] / total[-1] * len(index)).astype(np.int64)
        for k, part in enumerate(np.split(index, cuts)):
            dealt[k].append(part)
            sizes[k] += len(part)
    return [np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64) for parts in dealt]


def column_partition(values: Sequence[str]) -> dict[str, Index]:
    """One node for each different value (a hospital, a region …): node id -> indices in file order, int64.

    Raises ``DataError`` when there are more than ``MAX_NODES`` values.
    """
    ids = node_names(sorted(set(values)))
    members: dict[str, list[int]] = {node: [] for node in ids.values()}
    for i, value in enumerate(values):
        members[ids[value]].append(i)
    return {node: np.asarray(index, dtype=np.int64) for node, index in sorted(members.items())}


def node_names(values: Sequence[str]) -> dict[str, str]:
    """Value -> node id (letters, digits and hyphens, at most 63): ``St. Mary's`` becomes ``st-mary-s``.

    A value without Latin letters or digits becomes ``node-`` and eight digits of its SHA-256. When two values would
    share an id, the later ones in order get ``-2``, ``-3`` …
    """
    if len(values) > MAX_NODES:
        raise DataError(
            f"{len(values)} different values in the partition's column: too many for a node each ({MAX_NODES} at most)",
            hint="name a column that says which institution a record belongs to",
        )
    ids: dict[str, str] = {}
    for value in values:
        slug = _slug(value)
        node, count = slug, 1
        while node in ids.values():
            count += 1
            node = f"{slug[: _MAX_ID - 1 - len(str(count))].rstrip('-')}-{count}"
        ids[value] = node
    return ids


def _slug(value: str) -> str:
    plain = unicodedata.normalize("NFKD", value).encode("ascii", "ignore").decode("ascii").lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_MAX_ID].rstrip("-")
    return slug or f"node-{hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def holdout(data: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """(rest, held out): of each class the ``fraction`` nearest in whole records, drawn at random; both in the order
    of ``data``.

    Of a class with two records or more at least one is on either side; a single record stays in the rest. Raises
    ``DataError`` when nothing can be held out.
    """
    rest, out = _holdout_index(data.y, len(data.classes), fraction, seed)
    return data.subset(rest), data.subset(out)


def _holdout_index(y: Index, num_classes: int, fraction: float, seed: int) -> tuple[Index, Index]:
    if not 0 < fraction < 1:
        raise DataError(f"cannot hold out the fraction {fraction:g} of the records (allowed: between 0 and 1)")
    rng = numpy_generator(seed, "partition", "holdout")
    out = np.zeros(len(y), dtype=np.bool_)
    for c in range(num_classes):
        index = rng.permutation(np.flatnonzero(y == c))  # (n_c,)
        if len(index) > 1:
            take = min(max(int(fraction * len(index) + 0.5), 1), len(index) - 1)
            out[index[:take]] = True
    if not out.any():
        raise DataError(
            f"{len(y)} records leave none to test on: no class has two",
            hint="name a source of test records (simulation.test)",
        )
    return np.flatnonzero(~out).astype(np.int64), np.flatnonzero(out).astype(np.int64)


def deal(simulation: Simulation, task: Task, seed: int) -> tuple[dict[str, Dataset], Dataset]:
    """The nodes' records by node id, in the order of the ids, and the test records.

    Test records are held out before ``limit`` is drawn and the rest is dealt out, so no node holds one of them.
    Raises ``DataError`` or ``ConfigError`` naming what is wrong with the source or the partition.
    """
    data, groups = _load(simulation, task)
    if simulation.test is not None:
        test, rest = load_dataset(simulation.test, task), np.arange(len(data), dtype=np.int64)
    else:
        rest, out = _holdout_index(data.y, len(data.classes), simulation.test_fraction, seed)
        test = data.subset(out)
    if simulation.limit is not None and simulation.limit < len(rest):
        drawn = numpy_generator(seed, "partition", "limit").choice(len(rest), simulation.limit, replace=False)
        rest = rest[np.sort(drawn)]
    parts = _parts(simulation, data, groups, rest, seed)
    return {node: data.subset(rest[index]) for node, index in parts.items()}, test


def _load(simulation: Simulation, task: Task) -> tuple[Dataset, list[str]]:
    """The records, and for a partition by column the text of that column."""
    if simulation.partition.kind != "column":
        return load_dataset(simulation.data, task), []
    if simulation.data.kind != "csv":
        raise ConfigError(
            f"simulation.partition.kind 'column' needs a table, not simulation.data.kind '{simulation.data.kind}'",
            hint="allowed: 'csv' for data, or 'dirichlet' for the partition",
        )
    from fedsecure.data.table import load_table_by

    return load_table_by(simulation.data, task, simulation.partition.column)


def _parts(simulation: Simulation, data: Dataset, groups: list[str], rest: Index, seed: int) -> dict[str, Index]:
    """Node id -> positions in ``rest``."""
    partition = simulation.partition
    if partition.kind == "dirichlet":
        parts = dirichlet_partition(
            data.y[rest], len(data.classes), partition.nodes, partition.alpha, partition.min_size, seed
        )
        width = len(str(partition.nodes))
        return {f"node-{k:0{width}d}": part for k, part in enumerate(parts, start=1)}
    kept = [groups[record] for record in rest.tolist()]
    if lost := sorted(set(groups) - set(kept)):
        raise DataError(
            f"node {node_names(sorted(set(groups)))[lost[0]]}: all its records went to the test set or over the limit",
            hint="hold out less, raise limit, or name a source of test records",
        )
    return column_partition(kept)
