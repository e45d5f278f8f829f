"""What a node must remember of its sessions for good: the rounds it began, and the sums it helped to unmask.

Keys are gone when a session ends; this is not. Without it a coordinator could go back to a round, or let a node unmask
two sums of one contribution, whose difference is somebody's vector.
"""

from __future__ import annotations

from typing import Protocol

from fedsecure.errors import SecAggError

__all__ = ["MemoryOnly", "SessionMemory", "already_released", "replayed"]


class SessionMemory(Protocol):
    """A triple is (experiment, purpose, round). Both writing calls are durable before they return."""

    def begin(self, experiment: str, purpose: str, round_: int, /) -> None:
        """Note that a session of this triple begins; again is fine. Raises ``SecAggError``: REPLAYED for a round lower
        than the highest begun of this experiment and purpose, ALREADY_RELEASED for a released triple."""
        ...

    def release(self, experiment: str, purpose: str, round_: int, transcript3: bytes, /) -> None:
        """Note that shares which unmask the sum T3 (32 bytes) are about to leave. Raises ``SecAggError``
        ALREADY_RELEASED when any were before, for the same sum or another."""
        ...

    def released(self, experiment: str, purpose: str, round_: int, /) -> bytes | None:
        """The T3 that was released for this triple, or ``None``."""
        ...


class MemoryOnly:
    """A memory that lasts as long as its process: for simulations and tests, where nodes do not restart."""

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str], int] = {}
        self._released: dict[tuple[str, str, int], bytes] = {}

    def begin(self, experiment: str, purpose: str, round_: int, /) -> None:
        """As in ``SessionMemory``."""
        if (experiment, purpose, round_) in self._released:
            raise already_released(purpose, round_)
        highest = self._highest.get((experiment, purpose), round_)
        if round_ < highest:
            raise replayed(purpose, round_, highest)
        self._highest[experiment, purpose] = round_

    def release(self, experiment: str, purpose: str, round_: int, transcript3: bytes, /) -> None:
        """As in ``SessionMemory``."""
        if (experiment, purpose, round_) in self._released:
            raise already_released(purpose, round_)
        self._released[experiment, purpose, round_] = transcript3

    def released(self, experiment: str, purpose: str, round_: int, /) -> bytes | None:
        """As in ``SessionMemory``."""
        return self._released.get((experiment, purpose, round_))


def already_released(purpose: str, round_: int) -> SecAggError:
    """The one wording of ALREADY_RELEASED."""
    return SecAggError(
        f"ALREADY_RELEASED: this node helped to unmask the sum of {purpose} in round {round_} before",
        hint="no second sum of one contribution is ever unmasked; go on with the next round",
    )


def replayed(purpose: str, round_: int, highest: int) -> SecAggError:
    """The one wording of REPLAYED."""
    return SecAggError(
        f"REPLAYED: a session of {purpose} in round {round_}, after round {highest} was begun",
        hint="the coordinator went back: its store may have been restored from an old copy",
    )
