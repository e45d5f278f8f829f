"""Filters of warnings for one block: Python has one list of them for all threads, so one block at a time changes it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["own_filters"]

_TURN = threading.RLock()


@contextmanager
def own_filters() -> Iterator[None]:
    """As ``warnings.catch_warnings``: filters that the block sets end with it. Other threads that want filters of
    their own wait; two blocks that overlapped would each put back what the other had set, or take it away."""
    with _TURN, warnings.catch_warnings():
        yield
