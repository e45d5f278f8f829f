"""Short secrets held in memory that can be overwritten when they are done with.

Python promises no more than this: the ``bytearray`` is overwritten; a copy that a library made on the way is freed, not
overwritten.
"""

from __future__ import annotations

import secrets

__all__ = ["SECRET_BYTES", "fresh_secret", "wipe"]

#: Size of every secret of secure aggregation: private keys, seeds, derived keys (bytes).
SECRET_BYTES = 32


def fresh_secret() -> bytearray:
    """32 bytes from the operating system's generator."""
    return bytearray(secrets.token_bytes(SECRET_BYTES))


def wipe(*buffers: bytearray) -> None:
    """Overwrite every buffer with zeros, in place; their lengths stay."""
    for buffer in buffers:
        buffer[:] = bytes(len(buffer))
