"""Key agreement: X25519 (RFC 7748) with a fresh key for every session, and refusal of keys that agree with everybody.

A private key leaves its object in one form only: as 32 bytes to be split into shares. Public keys are refused unless
they are canonical (top bit clear, below 2^255 - 19), so that one key has one encoding, and not of small order.
"""

from __future__ import annotations

from typing import NoReturn

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedsecure.crypto.secretbytes import SECRET_BYTES, fresh_secret, wipe
from fedsecure.errors import LocalProtocolError, SecAggError

__all__ = ["PUBLIC_BYTES", "AgreementKey", "check_public"]

#: Size of a public key (bytes; RFC 7748, section 5).
PUBLIC_BYTES = 32

_FIELD = 2**255 - 19
#: Any private key finds the points of small order, for they agree on zero with all of them.
_PROBE = X25519PrivateKey.from_private_bytes(bytes([8]) + bytes(30) + bytes([64]))


class AgreementKey:
    """A private X25519 key of one session. It never shows itself, and is gone after ``wipe``.

    OpenSSL's form of the key is made once, for making it costs as much as an exchange, and is let go by ``wipe``.
    """

    __slots__ = ("_key", "_secret", "public")

    def __init__(self, secret: bytes | bytearray) -> None:
        """Of 32 secret bytes, which are copied: a key rebuilt from shares. Raises ``ValueError`` for another length."""
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"an X25519 private key has {SECRET_BYTES} bytes, not {len(secret)}")
        self._secret = bytearray(secret)
        self._key: X25519PrivateKey | None = X25519PrivateKey.from_private_bytes(self._secret)
        #: The public half, 32 bytes.
        self.public: bytes = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> AgreementKey:
        """A fresh key from the operating system's generator."""
        secret = fresh_secret()
        try:
            return cls(secret)
        finally:
            wipe(secret)

    def exchange(self, peer_public: bytes, peer: str) -> bytearray:
        """X25519 of this key and the public key of ``peer``: 32 bytes, for key derivation alone; the caller wipes them.

        Raises ``SecAggError`` BAD_KEY for a public key that ``check_public`` refuses, ``LocalProtocolError`` after
        ``wipe``.
        """
        if self._key is None:
            raise _gone()
        return _exchange(self._key, peer_public, peer)

    def secret_for_sharing(self) -> bytearray:
        """A copy of the 32 secret bytes, to be split into shares; the caller wipes it."""
        if not self._secret:
            raise _gone()
        return bytearray(self._secret)

    def wipe(self) -> None:
        """Overwrite the secret; the public half stays. May be called again."""
        wipe(self._secret)
        self._secret, self._key = bytearray(), None

    def __repr__(self) -> str:
        return f"AgreementKey(public {self.public.hex()[:16]}…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an agreement key does not leave its process")


def check_public(public: bytes, owner: str) -> None:
    """Raise ``SecAggError`` BAD_KEY unless ``public`` is a canonical X25519 key, not of small order (RFC 7748, 6.1)."""
    wipe(_exchange(_PROBE, public, owner))


def _exchange(own: X25519PrivateKey, public: bytes, owner: str) -> bytearray:
    if len(public) != PUBLIC_BYTES:
        raise _bad(owner, f"has {len(public)} bytes, not {PUBLIC_BYTES}")
    if int.from_bytes(public, "little") >= _FIELD:
        raise _bad(owner, "is not in canonical form")
    try:
        return bytearray(own.exchange(X25519PublicKey.from_public_bytes(public)))
    except ValueError:
        raise _bad(owner, "is of small order: it would agree with everybody on the same secret") from None


def _bad(owner: str, fault: str) -> SecAggError:
    return SecAggError(
        f"BAD_KEY: the X25519 key of {owner[:80]} {fault}",
        hint="its software is faulty or hostile; nothing was sent to it",
    )


def _gone() -> LocalProtocolError:
    return LocalProtocolError("the session's private key is wiped already", hint="open a new session")
