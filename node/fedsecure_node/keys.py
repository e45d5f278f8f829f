"""How a node names what it keeps: one exchange of one run, and a digest by its first digits."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MIN_PREFIX", "ExchangeKey"]

#: A shorter part of a digest is too easily another's (hexadecimal digits).
MIN_PREFIX = 8


@dataclass(frozen=True, slots=True)
class ExchangeKey:
    """Names one contribution of this node. ``step`` is the exchange's position in its round."""

    plan: str
    round: int
    step: int
    attempt: int
    exchange: str

    def __str__(self) -> str:
        return f"round {self.round + 1} {self.exchange}" + (f" attempt {self.attempt + 1}" if self.attempt else "")
