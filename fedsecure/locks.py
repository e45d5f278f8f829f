"""Locks between processes on one machine: the operating system frees them when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsecure.errors import ConfigError, FedSecureError
from fedsecure.files import PRIVATE_FILE, exists, faults

__all__ = ["DAEMON_LOCK", "daemon_lock", "file_lock", "is_held", "sole_lock"]

#: The file in a store that its daemon holds; its content is the daemon's process number.
DAEMON_LOCK = "daemon.lock"


@contextmanager
def daemon_lock(folder: Path, what: str) -> Iterator[None]:
    """Hold the store in ``folder`` for one daemon, a ``what`` ("node", "coordinator").

    Raises ``ConfigError`` at once, naming the process, when another holds it, ``StoreError`` when the file cannot be
    made.
    """

    def taken(process: str) -> ConfigError:
        holder = f" (process {process})" if process else ""
        return ConfigError(
            f"{folder}: another {what} daemon{holder} uses this store",
            hint=f"stop it first, or give this {what} a store of its own",
        )

    with sole_lock(folder / DAEMON_LOCK, taken):
        yield


@contextmanager
def sole_lock(path: Path, taken: Callable[[str], FedSecureError]) -> Iterator[None]:
    """Hold the file at ``path``, made when it is missing, as the only one. When another process holds it, raises at
    once what ``taken`` makes of its number (``""`` if unknown); ``StoreError`` when the file cannot be made."""
    handle = _open(path, os.O_RDWR | os.O_CREAT)
    try:
        with _turn(path.parent):
            if not _try_lock(handle, fcntl.LOCK_EX):
                holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
                raise taken(holder if holder.isdigit() else "")
            with faults(path):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def is_held(folder: Path) -> bool:
    """Whether a daemon holds the store in ``folder``. Raises ``StoreError`` when that cannot be seen."""
    path = folder / DAEMON_LOCK
    if not exists(path):
        return False
    handle = _open(path, os.O_RDONLY)
    try:
        with _turn(folder):  # a daemon that starts meanwhile must not take our look for a daemon
            free = _try_lock(handle, fcntl.LOCK_SH)
            if free:
                fcntl.flock(handle, fcntl.LOCK_UN)
        return not free
    finally:
        os.close(handle)


@contextmanager
def file_lock(path: Path, *, exclusive: bool) -> Iterator[None]:
    """Take turns between a daemon and the verbs: held for milliseconds, so waiting is right. A shared turn makes no
    file: where there is none, nobody ever wrote. Raises ``StoreError``."""
    if not exclusive and not exists(path):
        yield
        return
    handle = _open(path, os.O_RDWR | os.O_CREAT if exclusive else os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Be the only one that tries or looks at the daemon's lock, for an instant: a lock on the folder itself."""
    handle = _open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open(path: Path, flags: int) -> int:
    with faults(path, "opened"):
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
