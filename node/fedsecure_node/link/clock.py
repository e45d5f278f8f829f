"""How the coordinator's clock stands against ours, as far as round trips tell."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ClockOffset"]


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The coordinator's clock minus ours is between ``low`` and ``high`` (milliseconds): it told its time after we
    asked and before we had the answer. Where in between says nothing: all of the time may have gone one way."""

    low: int
    high: int

    @property
    def width(self) -> int:
        """How little is known of it: the length of the round trip."""
        return self.high - self.low

    @property
    def nearest(self) -> int:
        """The least difference, to either side, that the round trip allows."""
        return min(max(0, self.low), self.high)

    def narrowed(self, other: ClockOffset) -> ClockOffset:
        """What both allow; the narrower of the two where they contradict one another, since a clock was set."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return ClockOffset(low, high) if low <= high else min(self, other, key=lambda offset: offset.width)
