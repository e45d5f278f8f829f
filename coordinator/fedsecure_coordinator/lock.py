"""One daemon for one store."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from fedsecure.errors import ConfigError

__all__ = ["is_held", "only_daemon"]

#: Whoever only looks whether a daemon runs holds the lock for an instant: try this long (seconds).
PATIENCE = 1.0


@contextlib.contextmanager
def only_daemon(store: Path) -> Iterator[None]:
    """Hold the store's lock. Raises ``ConfigError`` when another daemon has it; a crash releases it."""
    handle = os.open(store / "daemon.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > end:
                    raise ConfigError(
                        f"{store}: another coordinator runs on this store", hint="stop it first, or use its folder"
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def is_held(store: Path) -> bool:
    """Whether a daemon runs on this store."""
    try:
        handle = os.open(store / "daemon.lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
