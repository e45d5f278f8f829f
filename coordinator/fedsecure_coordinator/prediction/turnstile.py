"""How many calls of analysts go on at once: they have a share of the threads, and no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fedsecure.errors import WireError

__all__ = ["CALLS_EACH", "Turnstile"]

#: Calls of one analyst at once.
CALLS_EACH: Final = 4


class Turnstile:
    """Lets in ``CALLS_EACH`` calls of each analyst, and of all together as many as ``analysts`` of them can make."""

    def __init__(self, analysts: int) -> None:
        self._limit, self._lock = analysts * CALLS_EACH, threading.Lock()
        self._inside: dict[str, int] = {}

    @contextmanager
    def entered(self, analyst: str) -> Iterator[None]:
        """Be counted until the block ends. Raises ``WireError`` at once when there is no room."""
        with self._lock:
            mine, everybody = self._inside.get(analyst, 0), sum(self._inside.values())
            if mine >= CALLS_EACH:
                raise WireError(
                    f"analyst {analyst}: {mine} calls go on already (allowed: {CALLS_EACH})",
                    hint="wait for them to end",
                )
            if everybody >= self._limit:
                raise WireError(
                    f"this coordinator is busy with {everybody} calls of analysts",
                    hint="try again later; its operator can raise limits.max_analysts",
                )
            self._inside[analyst] = mine + 1
        try:
            yield
        finally:
            with self._lock:
                self._inside[analyst] -= 1
                if not self._inside[analyst]:
                    del self._inside[analyst]
