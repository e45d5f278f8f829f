"""Hashes of secure aggregation: H(label, x, …) = SHA-256(LP("fedsecure/secagg/v1/" + label, x, …)).

LP is ``framing.length_prefixed``. A hash for one label is never that of another, nor is that of other items; the same
prefix stands before the labels of signatures and of derived keys.
"""

from __future__ import annotations

import hashlib
import re

from fedsecure.crypto.framing import length_prefixed

__all__ = ["DIGEST_BYTES", "PREFIX", "labelled_hash"]

#: What every label of secure aggregation, version 1, begins with.
PREFIX = "fedsecure/secagg/v1/"
#: Length of a hash (bytes).
DIGEST_BYTES = 32
_LABEL = re.compile(r"[a-z0-9]{1,32}")


def labelled_hash(label: str, *items: bytes) -> bytes:
    """H(label, items…), 32 bytes. Raises ``ValueError`` for a label that is not 1 to 32 lower-case letters and digits,
    or an item that a four-byte length cannot announce."""
    if not _LABEL.fullmatch(label):
        raise ValueError(f"hash label {label[:40]!r} is malformed")
    return hashlib.sha256(length_prefixed((PREFIX + label).encode(), *items)).digest()
