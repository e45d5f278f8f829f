"""Files of the node's store: private from the first byte, whole or absent, and on the disk before anything relies on
them."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from fedsecure.errors import ConfigError, DataError

__all__ = ["FILE_MODE", "FOLDER_MODE", "private_folder", "read_digest_named", "sync_folder", "write_private"]

#: Nobody but the daemon's user reads its store: it holds local state and releases that may still be held back.
FOLDER_MODE = 0o700
FILE_MODE = 0o600


def private_folder(path: Path) -> Path:
    """Make ``path`` a folder of mode 0700, or check that it is one of ours.

    Raises ``ConfigError`` when it is a symbolic link, no folder, another user's, or readable by others.
    """
    try:
        path.mkdir(mode=FOLDER_MODE, parents=True)
        path.chmod(FOLDER_MODE)  # whatever the umask was
        sync_folder(path.parent)
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigError(f"{path}: cannot be made: {error.strerror}", hint="check the folder above it") from None
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise ConfigError(f"{path}: is not a folder (a link or a file)", hint="name a folder that only this node uses")
    if info.st_uid != os.geteuid():
        raise ConfigError(f"{path}: belongs to another user", hint="run the node as the user who owns its store")
    if stat.S_IMODE(info.st_mode) & 0o077:
        raise ConfigError(
            f"{path}: mode {stat.S_IMODE(info.st_mode):04o} lets others look into the store",
            hint=f"chmod 700 {path}",
        )
    return path


def sync_folder(path: Path) -> None:
    """Put the folder's own entries on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_private(path: Path, data: bytes) -> None:
    """Write ``path`` whole or not at all: a 0600 file beside it, fsynced, then renamed over it, then the folder
    fsynced."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_digest_named(path: Path, digest: str, what: str) -> bytes:
    """The bytes of a file kept under its SHA-256. Raises ``DataError`` when it is gone or no longer has that digest."""
    import hashlib

    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{what} {digest[:12]}: {path} cannot be read: {error.strerror}",
            hint="restore it from a backup of the store",
        ) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise DataError(
            f"{what} {digest[:12]}: {path} no longer has this SHA-256: it was damaged or changed",
            hint="restore it from a backup of the store",
        )
    return data
