"""Content-addressed files: a blob's name is the SHA-256 of its bytes, made here and never taken from a peer's word.

After ``put`` returns it survives a power cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fedsecure.errors import StoreError
from fedsecure.files import faults, private_folder, remove_unfinished, write_durably

__all__ = ["BlobStore", "DamagedBlob"]

_HEX = frozenset("0123456789abcdef")


class DamagedBlob(StoreError):
    """One blob is gone or no longer what it was; the store is in order otherwise, and so are the runs without it."""


class BlobStore:
    """Blobs in one folder, made if missing, unless it is only for ``reading``. Methods raise ``StoreError`` naming the
    file, of which ``DamagedBlob`` is one kind."""

    def __init__(self, folder: Path, *, reading: bool = False) -> None:
        self._folder = folder if reading else private_folder(folder)

    def clean(self) -> None:
        """Remove what a crash left half written. Only for the one process that writes."""
        remove_unfinished(self._folder)

    def put(self, data: bytes) -> str:
        """Store ``data`` durably; returns its digest."""
        digest = hashlib.sha256(data).hexdigest()
        if not self.has(digest):
            write_durably(self._path(digest), data)
        return digest

    def has(self, digest: str) -> bool:
        """Whether the whole blob is there."""
        path = self._path(digest)
        with faults(path, "looked at"):
            return path.is_file()

    def get(self, digest: str) -> bytes:
        """The bytes, checked against the digest."""
        path = self._path(digest)
        with faults(path, "read"):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                raise DamagedBlob(f"blob {digest[:12]}: is gone", hint="restore the store from a backup") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise DamagedBlob(f"blob {digest[:12]}: damaged on disk", hint="restore the store from a backup")
        return data

    def size(self, digest: str) -> int:
        """Length in bytes."""
        path = self._path(digest)
        with faults(path, "read"):
            return path.stat().st_size

    def chunks(self, digest: str, offset: int, size: int) -> Iterator[bytes]:
        """The bytes from ``offset`` on, in pieces of ``size``, also when the blob is removed meanwhile."""
        path = self._path(digest)
        with faults(path, "read"):
            file = path.open("rb")
        return _pieces(path, file, offset, size)

    def digests(self) -> list[str]:
        """All blobs there are."""
        with faults(self._folder, "read"):
            return sorted(p.name for p in self._folder.iterdir() if len(p.name) == 64 and not set(p.name) - _HEX)

    def remove(self, digest: str) -> None:
        """Forget a blob; absent ones are fine."""
        path = self._path(digest)
        with faults(path, "removed"):
            path.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        if len(digest) != 64 or set(digest) - _HEX:
            raise StoreError("a blob's name is 64 lower-case hexadecimal digits")
        return self._folder / digest


def _pieces(path: Path, file: BinaryIO, offset: int, size: int) -> Iterator[bytes]:
    with file, faults(path, "read"):
        file.seek(offset)
        while piece := file.read(size):
            yield piece
