"""The process's root logger stays its owner's: no library that we import may give it handlers.

Opacus calls ``logging.basicConfig`` when it is imported. Every record of every logger then goes to standard error a
second time, as a line of its own form: a daemon that writes JSON would write lines that are none.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

__all__ = ["root_logger_kept"]


@contextlib.contextmanager
def root_logger_kept() -> Iterator[None]:
    """The root logger has the same handlers and level after the block as before."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
