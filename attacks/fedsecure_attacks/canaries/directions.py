"""Canaries: random directions in the space of what a node sends, each in the run or not by a coin of its own.

They are orthonormal, so that isotropic noise along them is independent from one to the next: what each tells is a
sample of its own, as exact binomial bounds need.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedsecure.errors import ConfigError

__all__ = ["LEAST", "Canaries"]

#: Fewer canaries than this show nothing.
LEAST = 40
#: The most values of all canaries together: 1 GiB in single precision.
MOST_VALUES = 1 << 28
Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Canaries:
    """``rows`` (m, d): orthonormal. ``inside`` (m,): which are in the run."""

    rows: Singles = field(repr=False)
    inside: npt.NDArray[np.bool_] = field(repr=False)

    def __len__(self) -> int:
        return len(self.inside)

    @classmethod
    def draw(cls, dimension: int, most: int, generator: np.random.Generator) -> Canaries:
        """At most ``most`` canaries, half of ``dimension``, and what memory holds. Raises ``ConfigError`` when that
        leaves fewer than ``LEAST``."""
        count = min(most, dimension // 2, MOST_VALUES // dimension)
        if count < LEAST:
            raise ConfigError(
                f"{count} canaries (at least {LEAST}) fit what a node sends of this plan, {dimension} values",
                hint="a canary needs two values of its own: audit a plan with a larger model, or ask for more canaries",
            )
        drawn = generator.standard_normal((dimension, count))
        rows = np.ascontiguousarray(np.linalg.qr(drawn)[0].T, dtype=np.float32)
        return cls(rows, generator.random(count) < 0.5)
