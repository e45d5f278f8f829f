"""Shamir's sharing of a 32-byte secret among n holders, any t of whom rebuild it (Shamir 1979).

The field is the integers modulo p = 2^256 + 297, the smallest prime above 2^256, so that every 32-byte string is a
secret. Holder i, from 1, has f(i) for a polynomial f of degree t - 1 with f(0) the secret and the other coefficients
uniform: fewer than t shares say nothing about it. Secrets and shares are big-endian. The steps taken depend on t and n
alone; the time that Python's integers take is not constant.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import lru_cache

from fedsecure.crypto.secretbytes import SECRET_BYTES
from fedsecure.errors import SecAggError

__all__ = [
    "MAX_SHARES",
    "PRIME",
    "SHARE_BYTES",
    "combine_shares",
    "inconsistent_shares",
    "is_well_formed",
    "split_secret",
]

#: The modulus.
PRIME = 2**256 + 297
#: Size of a share (bytes): the modulus has 257 bits.
SHARE_BYTES = 33
#: The most holders of one secret.
MAX_SHARES = 64


def split_secret(secret: bytes | bytearray, threshold: int, count: int) -> tuple[bytes, ...]:
    """Shares of ``secret`` (32 bytes) for holders 1 to ``count``, any ``threshold`` of which rebuild it.

    Raises ``ValueError`` unless 2 <= threshold <= count <= 64.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret to share has {SECRET_BYTES} bytes, not {len(secret)}")
    if not 2 <= threshold <= count <= MAX_SHARES:
        raise ValueError(f"{threshold} of {count} shares (allowed: 2 <= threshold <= count <= {MAX_SHARES})")
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return tuple(_evaluate(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in range(1, count + 1))


def combine_shares(shares: Mapping[int, bytes], threshold: int, owner: str) -> bytearray:
    """The 32-byte secret of ``owner`` from the ``threshold`` shares of lowest index; the caller wipes it.

    ``shares``: holder -> share. A wrong share gives a wrong secret, which only its owner's public key or commitment
    betrays: see ``recovery``. Raises ``SecAggError``: TOO_FEW_SHARES, or BAD_SHARE for a malformed one, or for shares
    that belong to no 32-byte secret.
    """
    points = _points(shares, threshold, owner)
    value = _interpolate(points[:threshold], 0)
    if value >> (8 * SECRET_BYTES):
        raise SecAggError(
            f"BAD_SHARE: the shares of {owner[:80]} held by {_listed(points[:threshold])} belong to no secret",
            hint="at least one of them is wrong: try others",
        )
    return bytearray(value.to_bytes(SECRET_BYTES, "big"))


def inconsistent_shares(
    shares: Mapping[int, bytes], right: tuple[int, ...], threshold: int, owner: str
) -> tuple[int, ...]:
    """The holders whose shares are not on the polynomial through those of the holders ``right``.

    Raises ``SecAggError`` as ``combine_shares`` does, for malformed shares or fewer than ``threshold`` right ones.
    """
    good = _points({x: shares[x] for x in right}, threshold, owner)[:threshold]
    rest = _points(shares, threshold, owner)
    return tuple(x for x, y in rest if _interpolate(good, x) != y)


def is_well_formed(holder: int, share: bytes) -> bool:
    """Whether ``share`` could be that of holder ``holder``: 1 to 64, 33 bytes, below the modulus."""
    return 1 <= holder <= MAX_SHARES and len(share) == SHARE_BYTES and int.from_bytes(share, "big") < PRIME


def _points(shares: Mapping[int, bytes], threshold: int, owner: str) -> list[tuple[int, int]]:
    """(x, f(x)) in order of x, once there are enough and all are well formed."""
    if not 2 <= threshold <= MAX_SHARES:
        raise ValueError(f"a threshold of {threshold} shares (allowed: 2 to {MAX_SHARES})")
    if len(shares) < threshold:
        raise SecAggError(
            f"TOO_FEW_SHARES: {len(shares)} of {owner[:80]} where {threshold} are needed",
            hint="too many nodes left; start the aggregation anew",
        )
    points = []
    for x, share in sorted(shares.items()):
        if not is_well_formed(x, share):
            raise SecAggError(
                f"BAD_SHARE: the share of {owner[:80]} held by {x} is malformed",
                hint="leave it out: its holder is faulty or hostile",
            )
        points.append((x, int.from_bytes(share, "big")))
    return points


def _evaluate(coefficients: list[int], x: int) -> int:
    """Horner's rule, constant term first."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value


def _interpolate(points: list[tuple[int, int]], at: int) -> int:
    """Lagrange's formula: the value at ``at`` of the polynomial through ``points``."""
    weights = _weights(tuple(x for x, _ in points), at)
    return sum(weight * y for weight, (_, y) in zip(weights, points, strict=True)) % PRIME


@lru_cache(maxsize=256)
def _weights(holders: tuple[int, ...], at: int) -> tuple[int, ...]:
    """What each holder's share counts for at ``at``; nothing secret, and the same for every secret they share."""
    weights = []
    for x in holders:
        numerator = denominator = 1
        for other in holders:
            if other != x:
                numerator = numerator * (at - other) % PRIME
                denominator = denominator * (x - other) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return tuple(weights)


def _listed(points: list[tuple[int, int]]) -> str:
    return ", ".join(str(x) for x, _ in points)
