"""Rebuilding a shared secret when some of the shares may be wrong.

The owner advertised something that its secret can be held against: the public key of a private key, the commitment to
a seed. Sets of holders are left out in turn, the smallest first, until what the others rebuild is accepted. The secret
is then certain. Who is at fault for a share that does not fit the set found is not: the holder may have changed it, the
owner may have dealt it, or holders inside the set may have changed theirs together so that the secret stayed right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, islice

from fedsecure.crypto.secretbytes import wipe
from fedsecure.crypto.shamir import combine_shares, inconsistent_shares, is_well_formed
from fedsecure.errors import SecAggError

__all__ = ["MAX_ATTEMPTS", "Recovered", "recover_secret"]

#: How many sets of holders are tried: all of them up to 12 holders, any two wrong ones of 50; a second or two at most.
MAX_ATTEMPTS = 1500


@dataclass(frozen=True, slots=True)
class Recovered:
    """The secret (32 bytes; the caller wipes it), and the holders whose shares do not fit those that gave it, in order:
    a finding to record, not a proof of guilt."""

    secret: bytearray = field(repr=False)
    inconsistent: tuple[int, ...]


def recover_secret(
    shares: Mapping[int, bytes], threshold: int, owner: str, accept: Callable[[bytearray], bool]
) -> Recovered:
    """The secret of ``owner`` that ``accept`` knows to be right, from ``shares`` (holder -> share).

    Raises ``SecAggError``: TOO_FEW_SHARES, when fewer than ``threshold`` are well formed; BAD_SHARE, when no set of
    holders that was tried gives the secret: too many shares are wrong, or the owner shared another secret than it
    advertised.
    """
    sound = {x: share for x, share in sorted(shares.items()) if is_well_formed(x, share)}
    malformed = set(shares) - set(sound)
    for holders in islice(_subsets(tuple(sound), threshold), MAX_ATTEMPTS):
        try:
            secret = combine_shares({x: sound[x] for x in holders}, threshold, owner)
        except SecAggError:
            if len(sound) < threshold:
                raise
            continue
        if accept(secret):
            others = inconsistent_shares(sound, holders, threshold, owner)
            return Recovered(secret, tuple(sorted(malformed.union(others))))
        wipe(secret)
    raise SecAggError(
        f"BAD_SHARE: {len(shares)} shares of {owner[:80]} do not give the secret that it advertised",
        hint="it shared another one, or too many holders gave wrong shares; start the aggregation anew",
    )


def _subsets(holders: tuple[int, ...], threshold: int) -> Iterator[tuple[int, ...]]:
    """Every set of ``threshold`` holders once, in the order of how many lower ones it leaves out.

    With fewer holders than that, the one set of all of them.
    """
    yield holders[:threshold]
    for last in range(threshold, len(holders)):
        for left_out in combinations(holders[:last], last + 1 - threshold):
            yield (*(x for x in holders[:last] if x not in left_out), holders[last])
