"""The memory of sessions in the node's store: it outlives the process, and is on the disk before a reply leaves.

The release log says the same again, in a chain that is signed and whose head lies beside the identity key: a store put
back to an older copy shows there.
"""

from __future__ import annotations

from fedsecure.secagg.machines.memory import MOST_SESSIONS, already_released, among_others, begun_too_often, replayed
from fedsecure_node.store.sessionbook import SessionBook

__all__ = ["StoredMemory"]


class StoredMemory:
    """A ``fedsecure.secagg.machines.memory.SessionMemory``; one transaction a call, with ``synchronous=FULL``."""

    def __init__(self, book: SessionBook) -> None:
        self._book = book

    def begin(self, experiment: str, purpose: str, round_: int) -> None:
        """As in ``SessionMemory``."""
        with self._book.turn():
            if self._book.released(experiment, purpose, round_) is not None:
                raise already_released(purpose, round_)
            highest = self._book.highest(experiment, purpose)
            if highest is not None and round_ < highest:
                raise replayed(purpose, round_, highest)
            if self._book.begun(experiment, purpose, round_) >= MOST_SESSIONS:
                raise begun_too_often(purpose, round_)
            self._book.begin(experiment, purpose, round_)

    def release(
        self, experiment: str, purpose: str, round_: int, transcript3: bytes, model: bytes, survivors: tuple[str, ...]
    ) -> None:
        """As in ``SessionMemory``."""
        with self._book.turn():
            if self._book.released(experiment, purpose, round_) is not None:
                raise already_released(purpose, round_)
            if self._book.survivors(experiment, purpose, model) not in (None, survivors):
                raise among_others(purpose, round_)
            self._book.release(experiment, purpose, round_, transcript3)
            self._book.keep_survivors(experiment, purpose, model, survivors)

    def survivors(self, experiment: str, purpose: str, model: bytes) -> tuple[str, ...] | None:
        """As in ``SessionMemory``."""
        return self._book.survivors(experiment, purpose, model)

    def released(self, experiment: str, purpose: str, round_: int) -> bytes | None:
        """As in ``SessionMemory``."""
        return self._book.released(experiment, purpose, round_)
