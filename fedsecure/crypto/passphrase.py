"""A private key under a passphrase: PKCS#8 encryption, with the passphrase stretched first.

PKCS#8 as ``cryptography`` writes it (PBES2, AES-256-CBC) derives its key with 2048 rounds of PBKDF2 only, which a thief
of the file tries millions of passphrases a second against. So its password is scrypt(passphrase, salt) (RFC 7914), in
hex; salt and costs stand in one line of text before the PEM block.
"""

from __future__ import annotations

import os
import re

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from fedsecure.crypto.pem import load_ec_key, private_pem
from fedsecure.errors import CertificateError

__all__ = ["is_locked", "lock", "unlock"]

#: scrypt's costs (RFC 7914, section 2): 128 MiB and about half a second a try.
COST, BLOCK, PARALLEL = 1 << 17, 8, 1
#: Costs that a file may ask for at most: it must not exhaust the memory of who opens it.
MAX_COST = 1 << 20
_HEAD = re.compile(rb"\Afedsecure key, scrypt n=([0-9]{1,8}) r=8 p=1 salt=([0-9a-f]{32})\n")


def lock(key: ec.EllipticCurvePrivateKey, passphrase: bytes | None) -> bytes:
    """The content of a key file, encrypted unless ``passphrase`` is ``None``."""
    if passphrase is None:
        return private_pem(key)
    salt = os.urandom(16)
    head = f"fedsecure key, scrypt n={COST} r={BLOCK} p={PARALLEL} salt={salt.hex()}\n".encode()
    return head + private_pem(key, _stretch(passphrase, salt, COST))


def is_locked(data: bytes) -> bool:
    """Whether the key in ``data`` needs a passphrase."""
    return b"ENCRYPTED PRIVATE KEY" in data


def unlock(data: bytes, passphrase: bytes | None, what: str) -> ec.EllipticCurvePrivateKey:
    """The key that ``lock`` wrote. Raises ``CertificateError``, naming ``what``: no passphrase, a needless one, a wrong
    one, or a damaged file."""
    if not is_locked(data):
        if passphrase is not None:
            raise CertificateError(
                f"{what}: a passphrase was given but the key is not encrypted", hint="leave the passphrase out"
            )
        return load_ec_key(data, what)
    if passphrase is None:
        raise CertificateError(f"{what}: the key is encrypted and no passphrase was given", hint="give the passphrase")
    head = _HEAD.match(data)
    if not head or not 2 <= (cost := int(head[1])) <= MAX_COST or cost & (cost - 1):
        raise CertificateError(f"{what}: damaged: its first line is missing", hint="restore it from a backup")
    return load_ec_key(data[head.end() :], what, _stretch(passphrase, bytes.fromhex(head[2].decode()), cost))


def _stretch(passphrase: bytes, salt: bytes, cost: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=cost, r=BLOCK, p=PARALLEL).derive(passphrase).hex().encode()
