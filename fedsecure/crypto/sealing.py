"""Sealing bytes to the holder of one key: HPKE in base mode (RFC 9180), as ``cryptography`` ships it.

DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305; single-shot, no associated data. ``info`` binds a sealed
message to its purpose: opened for another purpose, it does not open. Base mode says nothing of who sealed; that is the
business of a signature inside.
"""

from __future__ import annotations

from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from fedsecure.errors import RemoteProtocolError

__all__ = ["PUBLIC_BYTES", "SEAL_OVERHEAD", "SealingKey", "check_public", "seal"]

#: Size of an X25519 public key (bytes; RFC 7748, section 5).
PUBLIC_BYTES = 32
#: How much longer a sealed message is than its content: the encapsulated key and the tag (bytes; RFC 9180, 7.1, 7.3).
SEAL_OVERHEAD = 32 + 16

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class SealingKey:
    """A private key, held in memory alone, that opens what was sealed to its public half. It never shows itself."""

    __slots__ = ("_key", "public")

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = key
        #: The public half, 32 bytes: what ``seal`` takes.
        self.public: bytes = key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> SealingKey:
        """A fresh key from the operating system's generator."""
        return cls(X25519PrivateKey.generate())

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """What was sealed to this key for ``info``. Raises ``RemoteProtocolError``: another key, another purpose, or
        changed on the way; which of these it is cannot be told."""
        try:
            return _SUITE.decrypt(sealed, self._key, info=info)
        except (InvalidTag, ValueError):
            raise RemoteProtocolError(
                f"a sealed message of {len(sealed)} bytes does not open: sealed to another key or for another purpose, "
                "or changed on the way",
                hint="ask for the key again, and send it anew",
            ) from None

    def __repr__(self) -> str:
        return f"SealingKey(public {self.public.hex()[:16]}…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a sealing key does not leave its process")


def check_public(public: bytes) -> None:
    """Raise ``RemoteProtocolError`` unless one can seal to ``public``: 32 bytes, and no point of small order, for which
    X25519 gives the same secret to everybody (RFC 7748, section 6.1)."""
    seal(public, b"", b"")


def seal(public: bytes, plaintext: bytes, info: bytes) -> bytes:
    """``plaintext`` for the holder of ``public`` (32 bytes) alone; no two results are alike.

    Raises ``RemoteProtocolError`` when ``public``, which somebody else sent, is no usable X25519 key.
    """
    try:
        return _SUITE.encrypt(plaintext, X25519PublicKey.from_public_bytes(public), info=info)
    except ValueError:
        raise RemoteProtocolError(
            f"a key to seal to is malformed: {len(public)} bytes that are no X25519 key",
            hint="whoever sent it is at fault",
        ) from None
