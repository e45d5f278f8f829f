"""Uniform 64-bit words, as many as it takes: AES-256-CTR under a fresh key of the operating system's generator."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsecure.crypto.keystream import Mask, add_masks
from fedsecure.crypto.secretbytes import fresh_secret, wipe

__all__ = ["random_words"]


def random_words(count: int) -> npt.NDArray[np.uint64]:
    """``count`` independent words, uint64 (count,), each uniform over all 2^64. There is no seed, and every call has
    a key of its own, which is wiped."""
    words = np.zeros(count, np.uint64)
    key = fresh_secret()
    add_masks(words, [Mask(key)])
    wipe(key)
    return words
