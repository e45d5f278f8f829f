"""The keys of secure aggregation: HKDF-SHA256 (RFC 5869), 32 bytes each, one for every purpose.

==========  ==============================  ===================================================================
key         input key material              info = LP("fedsecure/secagg/v1/" + …)
==========  ==============================  ===================================================================
pair mask   X25519 of the two mask keys     ``pairmask``, smaller id, larger id, stream, ring bits, length
self mask   the owner's 32-byte seed        ``selfmask``, id of the owner, stream, ring bits, length
share AEAD  X25519 of the two share keys    ``share``, id of the sender, id of the receiver
==========  ==============================  ===================================================================

The salt is T1, the hash of everything that the session's participants advertised, fresh keys included: no key is ever
derived twice for two sessions. Ids and stream names are UTF-8; ids are ordered by these bytes. Ring bits are four bytes
and the length (in elements) eight, big-endian.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedsecure.crypto.framing import length_prefixed
from fedsecure.crypto.secretbytes import SECRET_BYTES
from fedsecure.crypto.transcripts import DIGEST_BYTES, PROTOCOL

__all__ = ["StreamId", "hkdf_sha256", "pair_mask_key", "pair_sign", "self_mask_key", "share_key"]


@dataclass(frozen=True, slots=True)
class StreamId:
    """What tells one vector of a session from another, as far as keys go.

    ``length`` in elements, 0 to 2^64 - 1. Raises ``ValueError`` for a ring other than 32 or 64 bits, or a length
    outside that range.
    """

    name: str
    ring_bits: int
    length: int

    def __post_init__(self) -> None:
        if self.ring_bits not in {32, 64}:
            raise ValueError(f"stream {self.name!r}: a ring of {self.ring_bits} bits (allowed: 32, 64)")
        if not 0 <= self.length < 2**64:
            raise ValueError(f"stream {self.name!r}: a length of {self.length} elements")

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """The three parts of an info string."""
        return self.name.encode(), self.ring_bits.to_bytes(4, "big"), self.length.to_bytes(8, "big")


def hkdf_sha256(key_material: bytes | bytearray, salt: bytes, info: bytes, length: int = SECRET_BYTES) -> bytearray:
    """HKDF-SHA256, extract and expand: ``length`` bytes (1 to 8160), which the caller wipes."""
    derived = bytearray(length)
    HKDF(hashes.SHA256(), length, salt, info).derive_into(key_material, derived)
    return derived


def pair_mask_key(shared: bytes | bytearray, transcript: bytes, one: str, other: str, stream: StreamId) -> bytearray:
    """The key of the mask that two participants have in common, the same whichever of them asks.

    ``shared``: X25519 of their mask keys. Raises ``ValueError`` for a participant paired with itself.
    """
    _distinct(one, other)
    low, high = sorted((one.encode(), other.encode()))
    return _derive(shared, transcript, "pairmask", low, high, *stream.parts())


def self_mask_key(seed: bytes | bytearray, transcript: bytes, owner: str, stream: StreamId) -> bytearray:
    """The key of the mask that ``owner`` alone adds; ``seed``: its 32 secret bytes of this session."""
    return _derive(seed, transcript, "selfmask", owner.encode(), *stream.parts())


def share_key(shared: bytes | bytearray, transcript: bytes, sender: str, receiver: str) -> bytearray:
    """The key for shares on their way from ``sender`` to ``receiver``; the way back has another.

    ``shared``: X25519 of their share keys. Raises ``ValueError`` when sender and receiver are the same.
    """
    _distinct(sender, receiver)
    return _derive(shared, transcript, "share", sender.encode(), receiver.encode())


def pair_sign(own: str, peer: str) -> int:
    """+1 when ``own`` adds the mask it has in common with ``peer`` (the smaller id), -1 when it subtracts it.

    Raises ``ValueError`` for a participant paired with itself.
    """
    _distinct(own, peer)
    return 1 if own.encode() < peer.encode() else -1


def _derive(key_material: bytes | bytearray, transcript: bytes, purpose: str, *parts: bytes) -> bytearray:
    if len(key_material) != SECRET_BYTES or len(transcript) != DIGEST_BYTES:
        raise ValueError(
            f"a {purpose} key is derived from {SECRET_BYTES} secret bytes and a {DIGEST_BYTES}-byte transcript, "
            f"not from {len(key_material)} and {len(transcript)}"
        )
    return hkdf_sha256(key_material, transcript, length_prefixed(f"{PROTOCOL}/{purpose}".encode(), *parts))


def _distinct(one: str, other: str) -> None:
    if one == other:
        raise ValueError(f"participant {one[:80]!r} is paired with itself")
