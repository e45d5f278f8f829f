"""One vector of a masked sum as every node and the coordinator must agree on it, with the bounds that make it exact."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from fractions import Fraction

from fedsecure.crypto.transcripts import DIGEST_BYTES
from fedsecure.errors import ConfigError, SecAggError
from fedsecure.secagg.values.fixedpoint import RING_BITS, Weight, check_no_wraparound, sum_limit, weighted_bound

__all__ = [
    "MAX_COUNT",
    "MAX_LENGTH",
    "MAX_STREAMS",
    "StreamSpec",
    "Weighting",
    "check_offer",
    "check_streams",
    "public_weights",
]

#: Elements of one stream, and streams of one session, at most.
MAX_LENGTH = 2**31 - 1
MAX_STREAMS = 16
#: The largest number of records that may weight a value: beyond, the 64-bit ring has few bits left for fractions.
MAX_COUNT = 2**40
#: B lies between these: inside, B * 2^f is exact in float64.
MIN_CLIP, MAX_CLIP = 2.0**-60, 2.0**62
_NAME = re.compile(r"[a-z0-9][A-Za-z0-9._-]{0,255}")


class Weighting(IntEnum):
    """What multiplies a node's values. ``NONE``: nothing. ``PUBLIC``: a weight that all know; they sum to at most 1.
    ``COUNTS``: a number of records, multiplied in before the values come here and known to the node alone."""

    NONE = 0
    PUBLIC = 1
    COUNTS = 2


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One stream. ``length``: its elements, the clipped count at the end among them. ``ring_bits``: R, 32 or 64.
    ``frac_bits``: f. ``clip_abs``: B, the bound of a value before weighting. ``max_count``: the largest count that may
    weight it (1 unless ``weighting`` is ``COUNTS``). ``layout_digest``: of the tensors' names, dtypes and shapes.

    Raises ``ConfigError`` naming the stream and the field. Whether a sum may wrap depends on the cohort: ``check``.
    """

    name: str
    length: int
    ring_bits: int
    frac_bits: int
    clip_abs: float
    weighting: Weighting
    max_count: int
    layout_digest: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"stream name {self.name[:40]!r} is malformed", hint="letters, digits and ._- only")
        for field, fits, allowed in (
            ("length", 1 <= self.length <= MAX_LENGTH, f"1..{MAX_LENGTH}"),
            ("ring_bits", self.ring_bits in RING_BITS, "32, 64"),
            ("frac_bits", 0 <= self.frac_bits < self.ring_bits, f"0..{self.ring_bits - 1}"),
            ("clip_abs", MIN_CLIP <= self.clip_abs <= MAX_CLIP, f"{MIN_CLIP:g}..{MAX_CLIP:g}"),
            ("weighting", self.weighting in tuple(Weighting), "0, 1, 2"),
            ("max_count", 1 <= self.max_count <= self._most_count, f"1..{self._most_count}"),
        ):
            if not fits:
                raise ConfigError(f"stream {self.name}: {field} {getattr(self, field)} (allowed: {allowed})")
        if len(self.layout_digest) != DIGEST_BYTES:
            raise ConfigError(f"stream {self.name}: layout_digest has {len(self.layout_digest)} bytes, not 32")

    @property
    def _most_count(self) -> int:
        return MAX_COUNT if self.weighting == Weighting.COUNTS else 1

    @property
    def nbytes(self) -> int:
        """Bytes of one masked vector."""
        return self.length * self.ring_bits // 8

    @property
    def value_bound(self) -> float:
        """The bound of a value as it comes here: B, times ``max_count`` where a count is multiplied in already."""
        return weighted_bound(self.clip_abs, self.max_count)

    def total_weight(self, nodes: int) -> Weight:
        """The most that the weights of ``nodes`` nodes sum to: W over ``clip_abs``."""
        return Fraction(1) if self.weighting == Weighting.PUBLIC else nodes * self.max_count

    def limit(self, nodes: int) -> int:
        """The most that an element of the sum of ``nodes`` contributions can be, in ring units."""
        return sum_limit(self.frac_bits, self.clip_abs, self.total_weight(nodes), nodes)

    def clipped_limit(self, nodes: int) -> int:
        """The largest clipped count one node writes, so that the sum of ``nodes`` of them cannot wrap either."""
        return min(self.length - 1, ((1 << (self.ring_bits - 1)) - 1) // nodes)

    def check(self, nodes: int) -> None:
        """Raise ``ConfigError`` unless the sum of ``nodes`` contributions, and so of fewer, cannot wrap around."""
        weight = self.total_weight(nodes)
        check_no_wraparound(self.ring_bits, self.frac_bits, self.clip_abs, weight, nodes, name=f"stream {self.name}")

    @property
    def error_bound(self) -> float:
        """What one contribution's rounding adds at most to the error of a summed value: 2^-(f+1)."""
        return math.ldexp(1.0, -self.frac_bits - 1)


def check_streams(streams: Sequence[StreamSpec], nodes: int, *, max_bytes: int) -> None:
    """Raise ``ConfigError`` unless a session of ``nodes`` nodes may sum ``streams``: each exact, no name twice, at most
    ``MAX_STREAMS``, and no more than ``max_bytes`` in one node's masked vectors."""
    if not 1 <= len(streams) <= MAX_STREAMS:
        raise ConfigError(f"secure aggregation: {len(streams)} streams (allowed: 1..{MAX_STREAMS})")
    names = [spec.name for spec in streams]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"secure aggregation: two streams are named {twice[0]}")
    for spec in streams:
        spec.check(nodes)
    if (total := sum(spec.nbytes for spec in streams)) > max_bytes:
        raise ConfigError(f"secure aggregation: a node's masked vectors have {total} bytes (allowed: <= {max_bytes})")


def check_offer(due: Sequence[StreamSpec], offered: Sequence[StreamSpec]) -> None:
    """Raise ``SecAggError`` BAD_CONFIG unless ``offered``, a coordinator's streams, are those ``due``, which a node
    derived from the plan itself: no bound, fraction or length is the coordinator's to choose."""
    if [spec.name for spec in offered] != [spec.name for spec in due]:
        names = ", ".join(spec.name for spec in offered) or "none"
        raise SecAggError(f"BAD_CONFIG: the streams {names[:200]} where {', '.join(s.name for s in due)} are due")
    for mine, theirs in zip(due, offered, strict=True):
        for field in fields(StreamSpec):
            wanted, found = getattr(mine, field.name), getattr(theirs, field.name)
            if wanted != found:
                shown = (d.hex()[:16] + "…" if isinstance(d, bytes) else str(d) for d in (found, wanted))
                raise SecAggError(
                    f"BAD_CONFIG: stream {mine.name}: {field.name} {' where '.join(shown)} is due",
                    hint="node and coordinator may run different versions; nothing was sent",
                )


def public_weights(records: Mapping[str, int]) -> dict[str, float]:
    """Each node's share of all records, rounded towards zero: their exact sum never passes 1, which the bound of a
    stream with public weights relies on. Raises ``ConfigError`` when there is no record, or a count below zero."""
    total = sum(records.values())
    if total <= 0 or min(records.values()) < 0:
        raise ConfigError("public weights: numbers of records must not be negative, nor all zero")
    return {node: weighted_bound(1.0, Fraction(count, total)) for node, count in records.items()}
