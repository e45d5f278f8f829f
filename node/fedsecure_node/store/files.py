"""Files of the node's store that are kept under the SHA-256 of their bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedsecure.errors import StoreError
from fedsecure.files import faults

__all__ = ["read_digest_named"]


def read_digest_named(path: Path, digest: str, what: str) -> bytes:
    """The bytes of a file kept under its SHA-256. Raises ``StoreError`` when it is gone or was changed."""
    with faults(path, "read"):
        data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise StoreError(
            f"{what} {digest[:12]}: {path} no longer has this SHA-256: it was damaged or changed",
            hint="restore it from a backup of the store",
        )
    return data
