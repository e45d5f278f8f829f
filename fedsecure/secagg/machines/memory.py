"""What a node must remember of its sessions for good: the rounds it began, how often, and the sums it helped to unmask.

Keys are gone when a session ends; this is not. Without it a coordinator could go back to a round, have one contribution
masked without end, or let a node unmask two sums of it, whose difference is somebody's vector.

Nor may two rounds give such a difference. A round whose sum is lost after nodes gave their shares is followed by one
from the same model, in which nodes may well compute the same again. All sums of one model that a node helps to unmask
are therefore over the same nodes: two different ones would find no t nodes, as in one round (2t > N + n_c).
"""

from __future__ import annotations

from typing import Protocol

from fedsecure.errors import SecAggError

__all__ = [
    "MAX_SESSIONS",
    "MOST_SESSIONS",
    "MemoryOnly",
    "SessionMemory",
    "already_released",
    "among_others",
    "begun_too_often",
    "replayed",
    "session_numbers",
]

#: Sessions over the same contributions, before nodes are asked to contribute again.
MAX_SESSIONS = 3
#: Sessions of one triple that a node begins, in all: a coordinator opens three over the same contributions, and asks
#: for those three times.
MOST_SESSIONS = 9


def session_numbers(attempt: int) -> range:
    """The numbers, ``SessionConfig.attempt``, of the sessions over what nodes contributed to this attempt of an
    exchange (from 0)."""
    return range(attempt * MAX_SESSIONS, (attempt + 1) * MAX_SESSIONS)


class SessionMemory(Protocol):
    """A triple is (experiment, purpose, round). Both writing calls are durable before they return."""

    def begin(self, experiment: str, purpose: str, round_: int, /) -> None:
        """Count a session of this triple that begins. Raises ``SecAggError``, and counts nothing: REPLAYED for a round
        lower than the highest begun of this experiment and purpose, and when ``MOST_SESSIONS`` of this triple were
        begun; ALREADY_RELEASED for a released triple."""
        ...

    def release(
        self,
        experiment: str,
        purpose: str,
        round_: int,
        transcript3: bytes,
        model: bytes,
        survivors: tuple[str, ...],
        /,
    ) -> None:
        """Note that shares which unmask the sum T3 (32 bytes) over ``survivors`` are about to leave; ``model``:
        SHA-256 of what they computed from. Raises ``SecAggError`` ALREADY_RELEASED when any were before, for the same
        sum or another, or in another round for a sum of this model over other nodes."""
        ...

    def survivors(self, experiment: str, purpose: str, model: bytes, /) -> tuple[str, ...] | None:
        """Over which nodes the sums of this model were that shares left for, or ``None``."""
        ...

    def released(self, experiment: str, purpose: str, round_: int, /) -> bytes | None:
        """The T3 that was released for this triple, or ``None``."""
        ...


class MemoryOnly:
    """A memory that lasts as long as its process: for simulations and tests, where nodes do not restart."""

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str], int] = {}
        self._begun: dict[tuple[str, str, int], int] = {}
        self._released: dict[tuple[str, str, int], bytes] = {}
        self._survivors: dict[tuple[str, str, bytes], tuple[str, ...]] = {}

    def begin(self, experiment: str, purpose: str, round_: int, /) -> None:
        """As in ``SessionMemory``."""
        if (experiment, purpose, round_) in self._released:
            raise already_released(purpose, round_)
        highest = self._highest.get((experiment, purpose), round_)
        if round_ < highest:
            raise replayed(purpose, round_, highest)
        begun = self._begun.get((experiment, purpose, round_), 0)
        if begun >= MOST_SESSIONS:
            raise begun_too_often(purpose, round_)
        self._highest[experiment, purpose] = round_
        self._begun[experiment, purpose, round_] = begun + 1

    def release(
        self,
        experiment: str,
        purpose: str,
        round_: int,
        transcript3: bytes,
        model: bytes,
        survivors: tuple[str, ...],
        /,
    ) -> None:
        """As in ``SessionMemory``."""
        if (experiment, purpose, round_) in self._released:
            raise already_released(purpose, round_)
        if self._survivors.get((experiment, purpose, model), survivors) != survivors:
            raise among_others(purpose, round_)
        self._released[experiment, purpose, round_] = transcript3
        self._survivors[experiment, purpose, model] = survivors

    def survivors(self, experiment: str, purpose: str, model: bytes, /) -> tuple[str, ...] | None:
        """As in ``SessionMemory``."""
        return self._survivors.get((experiment, purpose, model))

    def released(self, experiment: str, purpose: str, round_: int, /) -> bytes | None:
        """As in ``SessionMemory``."""
        return self._released.get((experiment, purpose, round_))


def already_released(purpose: str, round_: int) -> SecAggError:
    """The one wording of ALREADY_RELEASED."""
    return SecAggError(
        f"ALREADY_RELEASED: this node helped to unmask the sum of {purpose} in round {round_ + 1} before",
        hint="no second sum of one contribution is ever unmasked; go on with the next round",
    )


def among_others(purpose: str, round_: int) -> SecAggError:
    """The wording of ALREADY_RELEASED for a sum of one model over other nodes than before."""
    return SecAggError(
        f"ALREADY_RELEASED: a sum of {purpose} in round {round_ + 1} over other nodes than the one of the same model "
        "that this node helped to unmask before",
        hint="two sums of one model can be subtracted; it takes the same nodes, or another model",
    )


def replayed(purpose: str, round_: int, highest: int) -> SecAggError:
    """The wording of REPLAYED for a round that is over."""
    return SecAggError(
        f"REPLAYED: a session of {purpose} in round {round_ + 1}, after round {highest + 1} was begun",
        hint="the coordinator went back: its store may have been restored from an old copy",
    )


def begun_too_often(purpose: str, round_: int) -> SecAggError:
    """The wording of REPLAYED for a sum that was tried often enough."""
    return SecAggError(
        f"REPLAYED: a session of {purpose} in round {round_ + 1}, after {MOST_SESSIONS} others (allowed: "
        f"{MOST_SESSIONS})",
        hint="the coordinator goes beyond its own limit, or was restarted too often; ask its operator",
    )
