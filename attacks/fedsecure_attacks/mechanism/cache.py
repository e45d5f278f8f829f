"""Shadows on disk, by what they were made from: the pool's content, the split, the setting with the version of the
code, and the seed. A changed pixel is another shadow; a file whose content is not what it was is made anew."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import ValidationError

from fedsecure.data.npz import read_arrays
from fedsecure.errors import AuditError, DataError
from fedsecure.files import make_folder, write_durably
from fedsecure.tensors import Array
from fedsecure_attacks.federated import packing
from fedsecure_attacks.federated.setting import FederatedSetting
from fedsecure_attacks.federated.shadows import FederatedShadow, make_federated
from fedsecure_attacks.mechanism import shadows
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.mechanism.shadows import Shadow, make_shadow
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.splits import Mask

__all__ = ["ShadowCache", "shadow_key"]

#: The most bytes of one array of a shadow.
MOST_BYTES = 1 << 32
S = TypeVar("S")


def shadow_key(
    pool: str, inside: Mask, setting: Setting | FederatedSetting, seed: int, number: int, more: Sequence[str] = ()
) -> str:
    """SHA-256 (hex). ``pool`` is the digest of its content, ``more`` those of whatever else a shadow is made from; no
    path, no shape alone."""
    text = json.dumps([pool, setting.to_json(), seed, number, *more], sort_keys=True)
    found = hashlib.sha256(text.encode())
    found.update(np.packbits(inside).tobytes())
    return found.hexdigest()


class ShadowCache:
    """A folder of shadows, of single condensations and of federated runs; ``None`` keeps none. ``hits`` and ``made``
    count what was read and what was made."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.hits = self.made = 0

    def get(self, pool: Labelled, digest: str, inside: Mask, setting: Setting, seed: int, number: int) -> Shadow:
        """The condensation, read or made. ``digest`` is the pool's."""
        return self._take(
            shadow_key(digest, inside, setting, seed, number),
            shadows.NAMES,
            lambda held: shadows.unpack(held, inside, number),
            lambda: make_shadow(pool, inside, setting, seed, number),
            shadows.pack,
        )

    def get_federated(
        self,
        pool: Labelled,
        digest: str,
        inside: Mask,
        others: Labelled,
        setting: FederatedSetting,
        seed: int,
        number: int,
        *,
        test: Labelled | None = None,
    ) -> FederatedShadow:
        """The federated run, read or made (``make_federated``). ``digest`` is the pool's."""
        more = (others.digest(), "" if test is None else test.digest())
        return self._take(
            shadow_key(digest, inside, setting, seed, number, more),
            packing.NAMES,
            lambda held: packing.unpack(held, pool, inside),
            lambda: make_federated(pool, inside, others, setting, seed, number, test=test),
            packing.pack,
        )

    def _take(
        self,
        key: str,
        names: Sequence[str],
        unpack: Callable[[Mapping[str, Array]], S],
        make: Callable[[], S],
        pack: Callable[[S], Mapping[str, Array]],
    ) -> S:
        found = self._read(key, names, unpack)
        if found is not None:
            self.hits += 1
            return found
        made = make()
        self.made += 1
        self._write(key, pack(made))
        return made

    def _read(self, key: str, names: Sequence[str], unpack: Callable[[Mapping[str, Array]], S]) -> S | None:
        if self._folder is None or not (path := self._folder / f"{key}.npz").is_file():
            return None
        try:
            held = read_arrays(path, (*names, "digest"), most_bytes=MOST_BYTES)
            digest = held.pop("digest").tobytes()
            return unpack(held) if _digest(key, held) == digest else None
        except (AuditError, DataError, IndexError, ValueError, ValidationError):  # damaged: it is made anew
            return None

    def _write(self, key: str, arrays: Mapping[str, Array]) -> None:
        if self._folder is None:
            return
        make_folder(self._folder, private=True)
        stream = io.BytesIO()
        kept: dict[str, Any] = {**arrays, "digest": np.frombuffer(_digest(key, arrays), np.uint8)}
        np.savez(stream, **kept)
        write_durably(self._folder / f"{key}.npz", stream.getvalue())


def _digest(key: str, arrays: Mapping[str, Array]) -> bytes:
    """SHA-256 over ``key`` and every array: name, dtype, shape, bytes."""
    found = hashlib.sha256(key.encode())
    for name, array in sorted(arrays.items()):
        found.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        found.update(np.ascontiguousarray(array).data)
    return found.digest()
