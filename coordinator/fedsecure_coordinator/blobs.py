"""Content-addressed files: a blob's name is the SHA-256 of its bytes, made here and never taken from a peer's word.

Written beside its place, flushed to the disk, renamed, and the folder flushed: after ``put`` returns it survives a
power cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from fedsecure.errors import DataError

__all__ = ["BlobStore", "StoreError", "fsync_folder", "private_folder"]

_HEX = frozenset("0123456789abcdef")


class StoreError(DataError):
    """The coordinator's own store cannot be read or written: no node is to blame."""


def fsync_folder(folder: Path) -> None:
    """Make renames and removals in ``folder`` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def private_folder(folder: Path) -> Path:
    """Create ``folder`` for its owner alone (mode 0700). Raises ``StoreError`` naming it when that fails."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be created: {error.strerror}", hint="check its permissions") from None
    return folder


class BlobStore:
    """Blobs in one folder. Methods raise ``StoreError`` naming the blob when it is absent, damaged, or unwritable."""

    def __init__(self, folder: Path) -> None:
        self._folder = private_folder(folder)

    def clean(self) -> None:
        """Remove what a crash left half written. Only for the one process that writes."""
        for left_over in self._folder.glob("*.tmp"):
            left_over.unlink()

    def put(self, data: bytes) -> str:
        """Store ``data`` durably; returns its digest."""
        digest = hashlib.sha256(data).hexdigest()
        place = self._path(digest)
        if self.has(digest):
            return digest
        beside = self._folder / f"{uuid4().hex}.tmp"
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(place)
            fsync_folder(self._folder)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise StoreError(f"{place}: cannot be written: {error.strerror}", hint="free space on the disk") from None
        return digest

    def has(self, digest: str) -> bool:
        """Whether the whole blob is there."""
        return self._path(digest).is_file()

    def get(self, digest: str) -> bytes:
        """The bytes, checked against the digest."""
        try:
            data = self._path(digest).read_bytes()
        except OSError as error:
            raise StoreError(f"blob {digest[:12]}: cannot be read: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(f"blob {digest[:12]}: damaged on disk", hint="restore the store from a backup")
        return data

    def size(self, digest: str) -> int:
        """Length in bytes."""
        try:
            return self._path(digest).stat().st_size
        except OSError as error:
            raise StoreError(f"blob {digest[:12]}: cannot be read: {error.strerror}") from None

    def chunks(self, digest: str, offset: int, size: int) -> Iterator[bytes]:
        """The bytes from ``offset`` on, in pieces of ``size``."""
        try:
            file = self._path(digest).open("rb")
        except OSError as error:
            raise StoreError(f"blob {digest[:12]}: cannot be read: {error.strerror}") from None
        with file:
            file.seek(offset)
            while piece := file.read(size):
                yield piece

    def digests(self) -> list[str]:
        """All blobs there are."""
        return sorted(p.name for p in self._folder.iterdir() if len(p.name) == 64 and not set(p.name) - _HEX)

    def remove(self, digest: str) -> None:
        """Forget a blob; absent ones are fine."""
        with contextlib.suppress(FileNotFoundError):
            self._path(digest).unlink()

    def _path(self, digest: str) -> Path:
        if len(digest) != 64 or set(digest) - _HEX:
            raise StoreError("a blob's name is 64 lower-case hexadecimal digits")
        return self._folder / digest
