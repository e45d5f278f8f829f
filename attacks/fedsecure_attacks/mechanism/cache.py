"""Shadows on disk, by what they were made from: the pool's content, the split, the setting with the version of the
code, and the seed. A changed pixel is another shadow; a file whose content is not what it was is made anew."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np

from fedsecure.data.npz import read_arrays
from fedsecure.errors import DataError
from fedsecure.files import make_folder, write_durably
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.mechanism.shadows import Mask, Shadow, make_shadow
from fedsecure_attacks.records import Labelled

__all__ = ["ShadowCache", "shadow_key"]

#: The most bytes of one array of a shadow.
MOST_BYTES = 1 << 32


def shadow_key(pool: str, inside: Mask, setting: Setting, seed: int, number: int) -> str:
    """SHA-256 (hex). ``pool`` is the digest of its content; no path, no shape alone."""
    found = hashlib.sha256(json.dumps([pool, setting.to_json(), seed, number], sort_keys=True).encode())
    found.update(np.packbits(inside).tobytes())
    return found.hexdigest()


class ShadowCache:
    """A folder of shadows; ``None`` keeps none. ``hits`` and ``made`` count what was read and what was condensed."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.hits = self.made = 0

    def get(self, pool: Labelled, digest: str, inside: Mask, setting: Setting, seed: int, number: int) -> Shadow:
        """The shadow, read or made. ``digest`` is the pool's."""
        key = shadow_key(digest, inside, setting, seed, number)
        found = self._read(key, inside, number)
        if found is not None:
            self.hits += 1
            return found
        made = make_shadow(pool, inside, setting, seed, number)
        self.made += 1
        self._write(key, made)
        return made

    def _read(self, key: str, inside: Mask, number: int) -> Shadow | None:
        if self._folder is None or not (path := self._folder / f"{key}.npz").is_file():
            return None
        try:
            held = read_arrays(path, ("x", "y", "about", "digest"), most_bytes=MOST_BYTES)
            shadow = Shadow(
                Labelled(f"shadow {number}", held["x"], held["y"]),
                inside,
                float(held["about"][0]),
                int(held["about"][1]),
            )
            return shadow if _digest(key, shadow) == held["digest"].tobytes() else None
        except (DataError, IndexError, ValueError):  # damaged: it is made anew
            return None

    def _write(self, key: str, shadow: Shadow) -> None:
        if self._folder is None:
            return
        make_folder(self._folder, private=True)
        stream = io.BytesIO()
        about = np.array([shadow.residual, shadow.steps], np.float64)
        digest = np.frombuffer(_digest(key, shadow), np.uint8)
        np.savez(stream, x=shadow.released.x, y=shadow.released.y, about=about, digest=digest)
        assert zipfile.is_zipfile(stream)
        write_durably(self._folder / f"{key}.npz", stream.getvalue())


def _digest(key: str, shadow: Shadow) -> bytes:
    text = f"{key} {shadow.released.digest()} {shadow.residual!r} {shadow.steps}"
    return hashlib.sha256(text.encode()).digest()
