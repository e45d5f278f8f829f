"""A bound on the bytes of masked vectors in transit: each upload in progress holds a node's vectors in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedsecure.errors import WireError

__all__ = ["Buffers"]

#: How often a wait asks whether its caller still wants it (seconds).
LOOK_SECONDS = 0.5


class Buffers:
    """Room for ``limit`` bytes, and always for one upload, whatever its size. Safe to share between threads."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used, self._freed = limit, 0, threading.Condition()

    def turns(self, uploads: int, nbytes: int) -> int:
        """How many times in a row room for some of ``uploads`` of ``nbytes`` each must be found."""
        at_once = max(1, self._limit // max(1, nbytes))
        return -(-uploads // at_once)

    @contextmanager
    def hold(self, nbytes: int, given_up: Callable[[], bool]) -> Iterator[None]:
        """Hold ``nbytes`` inside the block; waits for room. Raises ``WireError`` as soon as ``given_up`` says so."""
        with self._freed:
            while self._used and self._used + nbytes > self._limit:
                if given_up():
                    raise WireError("upload: was given up before there was room for it", hint="try again")
                self._freed.wait(LOOK_SECONDS)
            self._used += nbytes
        try:
            yield
        finally:
            with self._freed:
                self._used -= nbytes
                self._freed.notify_all()
