"""A node for each value of a column: the values become node ids."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedsecure.errors import DataError

__all__ = ["MAX_NODES", "column_partition", "node_names"]

Index = npt.NDArray[np.int64]

#: More nodes than this no plan's cohort takes.
MAX_NODES = 1000
#: Longest node id (characters), as of a DNS label.
_MAX_ID = 63


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
