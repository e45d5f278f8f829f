"""Identity keys: Ed25519 (RFC 8032), for what must be provable later and offline, such as a node's release log.

What is signed is separated by purpose: LP("fedsecure/<label>") + LP(payload), LP being a four-byte big-endian length
and the bytes. A signature made for one label never verifies under another.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedsecure.crypto.framing import length_prefixed
from fedsecure.crypto.keyfiles import read_public, read_secret, write_secret
from fedsecure.errors import CertificateError

__all__ = [
    "PUBLIC_KEY_BYTES",
    "SIGNATURE_BYTES",
    "SigningIdentity",
    "ephemeral_identity",
    "generate_identity",
    "identity_fingerprint",
    "load_identity",
    "load_public_identity",
    "public_identity_pem",
    "signed_bytes",
    "verify",
]

#: Sizes of RFC 8032, section 5.1 (bytes).
PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64
_LABEL = re.compile(r"[a-z0-9][a-z0-9/._-]{0,63}")


def signed_bytes(label: str, payload: bytes) -> bytes:
    """The exact bytes that a signature of ``payload`` under ``label`` covers.

    Raises ``ValueError`` for a label that is not 1 to 64 lower-case letters, digits and ``/._-``.
    """
    if not _LABEL.fullmatch(label):
        raise ValueError(f"signature label {label[:80]!r} is malformed")
    return length_prefixed(f"fedsecure/{label}".encode(), payload)


def identity_fingerprint(public_bytes: bytes) -> str:
    """``SHA256:ab:cd…`` over the 32 bytes of an Ed25519 public key. Raises ``CertificateError`` for another length."""
    if len(public_bytes) != PUBLIC_KEY_BYTES:
        raise CertificateError(f"an identity key has {PUBLIC_KEY_BYTES} bytes, not {len(public_bytes)}")
    return "SHA256:" + hashlib.sha256(public_bytes).digest().hex(":")


class SigningIdentity:
    """A private identity key that signs and never shows itself: not in ``repr``, not by pickling or copying."""

    __slots__ = ("_key", "public_bytes")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        #: The public key, 32 bytes (RFC 8032, section 5.1.5).
        self.public_bytes: bytes = key.public_key().public_bytes_raw()

    @property
    def fingerprint(self) -> str:
        """``SHA256:ab:cd…`` of the public key."""
        return identity_fingerprint(self.public_bytes)

    def sign(self, label: str, payload: bytes) -> bytes:
        """The signature (64 bytes) of ``payload`` for the purpose ``label``; deterministic (RFC 8032, 5.1.6)."""
        return self._key.sign(signed_bytes(label, payload))

    def __repr__(self) -> str:
        return f"SigningIdentity({self.fingerprint})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a signing identity does not leave its process")


def ephemeral_identity() -> SigningIdentity:
    """A key from the operating system's generator that is stored nowhere: for simulations."""
    return SigningIdentity(Ed25519PrivateKey.generate())


def generate_identity(path: Path) -> SigningIdentity:
    """Make a key from the operating system's generator and store it at ``path``, mode 0600.

    Raises ``CertificateError`` when ``path`` exists or cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    write_secret(
        path,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
    return SigningIdentity(key)


def load_identity(path: Path) -> SigningIdentity:
    """Read a key that ``generate_identity`` made.

    Raises ``CertificateError``: missing, loose permissions, another owner, damaged, or a key of another kind.
    """
    data = read_secret(path, "identity key")
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise CertificateError(f"{path}: damaged, or not an identity key", hint="restore it from a backup") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise CertificateError(f"{path}: is a key, but not an Ed25519 one", hint="give the file identity.key")
    return SigningIdentity(key)


def public_identity_pem(public_bytes: bytes) -> bytes:
    """The public key as PEM (RFC 8410), the content of ``identity.pub``."""
    return Ed25519PublicKey.from_public_bytes(public_bytes).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def load_public_identity(path: Path) -> bytes:
    """The 32 bytes of the key in ``identity.pub``. Raises ``CertificateError``: missing, damaged, another kind."""
    data = read_public(path, "public identity key")
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError(
            f"{path}: damaged, or not a public identity key", hint="give the file identity.pub, as its owner sent it"
        ) from None
    if not isinstance(key, Ed25519PublicKey):
        raise CertificateError(f"{path}: is a public key, but not an Ed25519 one", hint="give the file identity.pub")
    return key.public_bytes_raw()


def verify(public_bytes: bytes, label: str, payload: bytes, signature: bytes) -> None:
    """Return when ``signature`` is that of ``payload`` for ``label`` by ``public_bytes``, else ``CertificateError``."""
    if len(public_bytes) != PUBLIC_KEY_BYTES:
        raise CertificateError(f"an identity key has {PUBLIC_KEY_BYTES} bytes, not {len(public_bytes)}")
    if len(signature) != SIGNATURE_BYTES:
        raise CertificateError(f"a signature has {SIGNATURE_BYTES} bytes, not {len(signature)}")
    try:
        Ed25519PublicKey.from_public_bytes(public_bytes).verify(signature, signed_bytes(label, payload))
    except InvalidSignature:
        raise CertificateError(
            f"the signature for {label} is not by the key {identity_fingerprint(public_bytes)} over these bytes",
            hint="the signed bytes were changed, or another key signed them",
        ) from None
    except ValueError as error:
        raise CertificateError(f"the public key or the label of a signature is malformed: {error}") from None
