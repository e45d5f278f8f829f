"""One daemon a store: an advisory lock that the operating system frees when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsecure.errors import ConfigError
from fedsecure.files import PRIVATE_FILE

__all__ = ["daemon_lock", "file_lock"]


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be opened: {error.strerror}", hint="check the store's folder") from None


@contextmanager
def daemon_lock(folder: Path) -> Iterator[None]:
    """Hold the store for one daemon. Raises ``ConfigError`` at once, naming the process, when another holds it."""
    path = folder / "daemon.lock"
    handle = _open(path)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
            raise ConfigError(
                f"{folder}: another node daemon{f' (process {holder})' if holder.isdigit() else ''} uses this store",
                hint="stop it first, or give this node a store of its own",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


@contextmanager
def file_lock(path: Path, *, exclusive: bool) -> Iterator[None]:
    """Take turns between the daemon and the verbs: held for milliseconds, so waiting is right."""
    handle = _open(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)
