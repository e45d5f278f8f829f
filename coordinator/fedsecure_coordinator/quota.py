"""At most one line a minute about the same thing, with how often it happened: no stranger can flood the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

__all__ = ["Quota"]

#: Between two lines about the same thing (seconds).
QUIET_SECONDS = 60.0
#: So many different things are told apart; beyond, the one longest silent is forgotten.
MAX_KEYS = 1000


class Quota:
    """Counts what happens by key. Safe to share between threads. ``clock``: seconds that only go forward."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._said: dict[Hashable, tuple[float, int]] = {}

    def take(self, key: Hashable) -> int:
        """It happened again. Returns how often it happened since it was last told, or 0 when it is not to be told."""
        with self._lock:
            now = self._clock()
            told, untold = self._said.pop(key, (now - QUIET_SECONDS, 0))
            due = now - told >= QUIET_SECONDS
            self._said[key] = (now, 0) if due else (told, untold + 1)
            while len(self._said) > MAX_KEYS:
                del self._said[next(iter(self._said))]
            return untold + 1 if due else 0
