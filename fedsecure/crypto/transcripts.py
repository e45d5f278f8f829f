"""What the participants of secure aggregation hash and sign: always for a named purpose, always length-prefixed.

H(label, x…) = SHA-256(LP("fedsecure/secagg/v1/" + label, x…)); a signature is Ed25519 over
LP("fedsecure/secagg/v1/" + label, payload). Bytes are signed as they travel and parsed afterwards.
"""

from __future__ import annotations

import hashlib
import re

from fedsecure.crypto.framing import length_prefixed
from fedsecure.crypto.signatures import SigningIdentity, verify
from fedsecure.errors import CertificateError, SecAggError

__all__ = ["DIGEST_BYTES", "PROTOCOL", "check_signature", "sign_payload", "transcript_hash"]

#: The prefix of every label: protocol and version.
PROTOCOL = "fedsecure/secagg/v1"
#: Size of a hash (bytes; FIPS 180-4).
DIGEST_BYTES = 32

_LABEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def transcript_hash(label: str, *parts: bytes) -> bytes:
    """H(label, parts…), 32 bytes. Raises ``ValueError`` for a malformed label."""
    if not _LABEL.fullmatch(label):
        raise ValueError(f"transcript label {label[:80]!r} is malformed")
    return hashlib.sha256(length_prefixed(f"{PROTOCOL}/{label}".encode(), *parts)).digest()


def sign_payload(identity: SigningIdentity, label: str, payload: bytes) -> bytes:
    """The signature (64 bytes) of ``payload`` for the purpose ``label``. Raises ``ValueError`` as above."""
    return identity.sign(_purpose(label), payload)


def check_signature(public_bytes: bytes, label: str, payload: bytes, signature: bytes, signer: str) -> None:
    """Return when ``signature`` is that of ``payload`` for ``label`` by ``public_bytes``, the key of ``signer``.

    Raises ``SecAggError`` BAD_SIGNATURE otherwise, ``ValueError`` for a malformed label.
    """
    purpose = _purpose(label)
    try:
        verify(public_bytes, purpose, payload, signature)
    except CertificateError as error:
        raise SecAggError(
            f"BAD_SIGNATURE: the {label} message of {signer[:80]}: {error}",
            hint="compare the fingerprint of that key with its owner's; if it is the same, the message was changed",
        ) from None


def _purpose(label: str) -> str:
    if not _LABEL.fullmatch(label):
        raise ValueError(f"signature label {label[:80]!r} is malformed")
    return f"{PROTOCOL.removeprefix('fedsecure/')}/{label}"
