"""How long a session waits for its nodes, leg by leg."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Times"]


@dataclass(frozen=True, slots=True)
class Times:
    """What legs may take (seconds). ``first``: leg 0, when a node may still be busy with another run. ``short``: every
    other leg (a coordinator's ``limits.leg_seconds``), and beside it what its bytes take at ``slowest`` (bytes a
    second)."""

    first: float
    short: float = 30.0
    slowest: float = 32 << 10

    def of(self, leg: int, nbytes: int) -> float:
        """Seconds for a leg in which a node receives or sends ``nbytes``."""
        return self.first if leg == 0 else self.short + nbytes / self.slowest

    def in_all(self, nbytes: int) -> float:
        """Seconds that a session of masked vectors of ``nbytes`` a node may take at most."""
        return self.first + 4 * self.of(1, 64 << 10) + nbytes / self.slowest
