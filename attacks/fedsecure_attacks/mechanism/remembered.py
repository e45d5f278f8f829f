"""Embeddings that are not computed twice: every target is compared with the same candidates and the same references."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import numpy as np

from fedsecure_attacks.embedding import Embedding
from fedsecure_attacks.records import Images
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["Remembered"]

#: The most bytes of embedded records that one embedding keeps: 1 GiB.
MOST_BYTES = 1 << 30


class Remembered:
    """``embed``, by the content of what it is given; what was not asked for longest is forgotten first. Every answer is
    the caller's own to write to."""

    def __init__(self, embed: Embedding, most_bytes: int = MOST_BYTES) -> None:
        self._embed, self._most, self._bytes = embed, most_bytes, 0
        self._kept: OrderedDict[bytes, Floats] = OrderedDict()

    def __call__(self, x: Images) -> Floats:
        """(n, *shape) -> (n, D)."""
        key = hashlib.sha256(repr(x.shape).encode() + np.ascontiguousarray(x).tobytes()).digest()
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key].copy()
        found = self._embed(x)
        self._kept[key] = found
        self._bytes += found.nbytes
        while self._bytes > self._most:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= gone.nbytes
        return found.copy()
