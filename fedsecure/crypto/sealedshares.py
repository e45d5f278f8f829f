"""Shares on their way from one node to another, through a coordinator that must not read them.

ChaCha20-Poly1305 (RFC 8439) with a zero nonce, under a key that seals one message in one direction of one session
(``keyschedule.share_key``): with a key used once the nonce has nothing to tell apart. The associated data is
LP(T1, sender, receiver). What is sealed is the receiver's index (one byte) and its two shares, 33 bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedsecure.crypto.framing import length_prefixed
from fedsecure.crypto.shamir import MAX_SHARES, SHARE_BYTES
from fedsecure.errors import SecAggError

__all__ = ["SEALED_BYTES", "SharePair", "open_shares", "seal_shares"]

#: Size of a sealed pair of shares: index, two shares, tag (bytes; RFC 8439, section 2.8).
SEALED_BYTES = 1 + 2 * SHARE_BYTES + 16

_NONCE = bytes(12)


@dataclass(frozen=True, slots=True)
class SharePair:
    """What one participant holds for another: its ``index`` (1 to 64), a share of the other's private mask key, and
    one of the other's self-mask seed (33 bytes each)."""

    index: int
    mask_share: bytes = field(repr=False)
    seed_share: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.index <= MAX_SHARES:
            raise ValueError(f"share index {self.index} (allowed: 1 to {MAX_SHARES})")
        if len(self.mask_share) != SHARE_BYTES or len(self.seed_share) != SHARE_BYTES:
            raise ValueError(f"a share has {SHARE_BYTES} bytes")


def seal_shares(key: bytes | bytearray, shares: SharePair, *, transcript: bytes, sender: str, receiver: str) -> bytes:
    """``shares``, readable by ``receiver`` alone: 83 bytes. ``key`` must seal nothing else, ever."""
    plaintext = bytes([shares.index]) + shares.mask_share + shares.seed_share
    return ChaCha20Poly1305(key).encrypt(_NONCE, plaintext, _associated(transcript, sender, receiver))


def open_shares(
    key: bytes | bytearray, sealed: bytes, *, transcript: bytes, sender: str, receiver: str, index: int
) -> SharePair:
    """What ``seal_shares`` sealed for ``receiver``, whose index is ``index``.

    Raises ``SecAggError`` BAD_SHARE: another size, another key, session, sender or receiver, changed on the way, or
    shares that belong to another index.
    """
    if len(sealed) != SEALED_BYTES:
        raise _bad(sender, receiver, f"have {len(sealed)} bytes, not {SEALED_BYTES}")
    try:
        plaintext = ChaCha20Poly1305(key).decrypt(_NONCE, sealed, _associated(transcript, sender, receiver))
    except InvalidTag:
        raise _bad(sender, receiver, "do not open: made for another session or key, or changed on the way") from None
    if plaintext[0] != index:
        raise _bad(sender, receiver, f"are those of index {plaintext[0]}, not {index}")
    return SharePair(index, plaintext[1 : 1 + SHARE_BYTES], plaintext[1 + SHARE_BYTES :])


def _associated(transcript: bytes, sender: str, receiver: str) -> bytes:
    return length_prefixed(transcript, sender.encode(), receiver.encode())


def _bad(sender: str, receiver: str, fault: str) -> SecAggError:
    return SecAggError(
        f"BAD_SHARE: the sealed shares from {sender[:80]} to {receiver[:80]} {fault}",
        hint="the coordinator showed the two nodes different sessions, or one of them is faulty",
        peer=sender,
    )
