"""Whether masks are on what each node uploads, and off their sum: by the session that daemons run."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.stats import chisquare

from fedsecure.masked_plan import MASS, noised_streams
from fedsecure.masked_simulation import MaskedSums
from fedsecure.method import Aggregate, sum_contributions
from fedsecure.schema import Contribution
from fedsecure.secagg.machines.node import SecAggNode
from fedsecure.secagg.machines.vectors import Masked
from fedsecure.secagg.protocol.chunks import parse_masked_chunk
from fedsecure.tensors import Tensors
from fedsecure_attacks.verdict import Control

__all__ = ["HeardSums"]

#: An upload whose leading bytes are as uneven as this by chance is not masked.
UNIFORM_P = 1e-9


class HeardSums(MaskedSums):
    """Masked sums that write down what the coordinator is sent. ``heard``: node -> leading bytes of its masked vectors,
    counted (256,). ``apart``: the tensors whose masked sum is not the plain one, with the largest difference.
    ``shared``: noise that nodes share, as found in sums, in standard deviations of what was accounted."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.heard: dict[str, np.ndarray] = {}
        self.apart: dict[str, float] = {}
        self.shared: list[float] = []

    def add(
        self, exchange: str, round_: int, attempt: int, contributions: Mapping[str, Contribution], state: bytes
    ) -> Aggregate:
        """As its base; compared with the plain sum, tensors with shared noise aside."""
        found = super().add(exchange, round_, attempt, contributions, state)
        plain = sum_contributions(contributions).summed
        self._hear_noise(exchange, round_, found.summed, plain)
        for stream in self.streams(exchange):
            bound = len(contributions) * stream.spec.error_bound
            for place in stream.places:
                if place.name == MASS and self.shared:  # noise that nodes share is in the masked sum alone
                    continue
                gap = float(np.abs(found.summed[place.name] - plain[place.name]).max(initial=0.0))
                if gap > bound + 1e-12 * float(np.abs(plain[place.name]).max(initial=0.0)):
                    self.apart[place.name] = max(gap, self.apart.get(place.name, 0.0))
        return found

    def _node(self, node: str, *given: object) -> SecAggNode:
        made = super()._node(node, *given)  # type: ignore[arg-type]
        answer = made.answer

        def heard(leg: int, message: bytes) -> bytes | Masked:
            found = answer(leg, message)
            if isinstance(found, Masked):
                self._hear(node, found)
            return found

        made.answer = heard  # type: ignore[method-assign]
        return made

    def _hear(self, node: str, masked: Masked) -> None:
        width = {}
        for stream in (s for streams in self._exchanges.values() for s in streams):
            width[stream.spec.nbytes] = stream.spec.ring_bits // 8
        data: dict[int, bytearray] = {}
        for chunk in map(parse_masked_chunk, masked.chunks()):
            data.setdefault(chunk.stream, bytearray()).extend(chunk.data)
        for vector in data.values():
            size = width[len(vector)]
            leading = np.frombuffer(bytes(vector), np.uint8)[size - 1 :: size]  # little endian: the last byte leads
            counts = np.bincount(leading, minlength=256)
            self.heard[node] = self.heard.get(node, 0) + counts

    def _hear_noise(self, exchange: str, round_: int, found: Tensors, plain: Tensors) -> None:
        """Keep what noise in shares makes of the sums that have some."""
        for noise in noised_streams(self._plan, round_, self.streams(exchange))[1]:
            accounted = math.sqrt(noise.variance * noise.shares) / 2**noise.stream.spec.frac_bits
            for place in noise.stream.places:
                self.shared += ((found[place.name] - plain[place.name]) / accounted).reshape(-1).tolist()

    def control(self) -> Control:
        """What was found: every upload looks like chance, every sum is right."""
        if self.apart:
            name, gap = max(self.apart.items(), key=lambda item: item[1])
            return Control("masks", False, f"the masked sum of {name} is off by {gap:.3g}: masks do not cancel")
        for node, counts in self.heard.items():
            if counts.sum() and float(chisquare(counts).pvalue) < UNIFORM_P:
                return Control("masks", False, f"what {node} uploads does not look like chance: it is not masked")
        count = len(self.heard)
        return Control(
            "masks", count > 0, f"what each of {count} nodes uploads looks like chance, and the sums are right"
        )
