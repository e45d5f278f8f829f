"""Files that outlive a crash: whole or absent, on the disk before anything relies on them; one line for a fault.

A file is written beside its place under a name of its own, flushed, renamed over it, and its folder flushed: after
that it survives a power cut, and nobody ever sees half of it (POSIX rename(2), fsync(2)).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fedsecure.errors import FedSecureError, StoreError

__all__ = [
    "PRIVATE_FILE",
    "PRIVATE_FOLDER",
    "PUBLIC_FILE",
    "advice",
    "create_durably",
    "escaped",
    "exists",
    "faults",
    "is_folder",
    "make_empty",
    "make_folder",
    "private_folder",
    "quoted",
    "remove_unfinished",
    "replacing",
    "require_place",
    "shown",
    "sync_folder",
    "write_all",
    "write_durably",
]

#: Modes of what only its owner may see, and of what everybody may read.
PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
PUBLIC_FILE = 0o644
#: Permission bits that let somebody else than the owner in.
OTHERS = 0o077
#: Names longer than this are cut in messages (characters).
MAX_SHOWN = 400
#: End of the name of a file that is not whole yet; a crash leaves it, and ``remove_unfinished`` takes it away.
UNFINISHED = ".unfinished"
#: Held while an empty file is made.
_MAKING = threading.Lock()

_HINTS = {
    errno.ENOSPC: "free space on the disk, then try again",
    errno.EDQUOT: "free space within the user's quota, then try again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), then try again",
    errno.EROFS: "mount the file system for writing, then try again",
    errno.EACCES: "check the permissions of the file and of the folders above it",
    errno.EPERM: "check the permissions of the file and of the folders above it",
    errno.EIO: "check the health of the disk",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path: a part of it is a file, not a folder",
    errno.EISDIR: "check the path: a folder is there, and a file is due",
    errno.EEXIST: "check the path: something else is there; name another",
    errno.ENAMETOOLONG: "check the path: a name is longer than the file system takes, most often 255 bytes",
    errno.ELOOP: "check the path: its links lead in a circle",
    errno.ETXTBSY: "check the path: a program runs from it",
}


def advice(fault: OSError, default: str = "") -> str:
    """What to do about a fault of the file system: the hint of an error that names it."""
    return _HINTS.get(fault.errno or 0, default)


def escaped(text: str | Path) -> str:
    """``text`` with control characters and undecodable bytes escaped, so that nothing in it can steer a terminal or
    break a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))


def quoted(path: str | Path) -> str:
    """A path as a command that a person is to copy may hold it: quoted for the shell where it needs that."""
    return shlex.quote(str(path))


def shown(text: str | Path) -> str:
    """A path or name as a message may hold it: control characters and undecodable bytes escaped, so that no file name
    can steer a terminal or break a log; very long ones cut in the middle."""
    safe = escaped(text)
    return safe if len(safe) <= MAX_SHOWN else f"{safe[: MAX_SHOWN // 2]}…{safe[-MAX_SHOWN // 2 :]}"


@contextlib.contextmanager
def faults(path: Path, done: str = "written", error: type[FedSecureError] = StoreError) -> Iterator[None]:
    """Turns what the operating system says about ``path`` into an ``error`` of one line that names it: it cannot be
    ``done``. The hint says what to do about the cause."""
    try:
        yield
    except OSError as fault:
        words = fault.strerror or type(fault).__name__
        raise error(f"{shown(path)}: cannot be {done}: {words}", hint=advice(fault)) from None
    except UnicodeEncodeError:
        raise error(
            f"{shown(path)}: cannot be named in this locale", hint="run with a UTF-8 locale, such as LC_ALL=C.UTF-8"
        ) from None
    except ValueError as fault:
        if "null" not in str(fault):
            raise
        raise error(f"{shown(path)}: a path holds no NUL character") from None


def exists(path: Path, error: type[FedSecureError] = StoreError) -> bool:
    """Whether something is at ``path``. Raises ``error`` where that cannot be seen: a folder that may not be entered
    is no sign that nothing is in it."""
    with faults(path, "looked at", error):
        return path.exists()


def is_folder(path: Path, error: type[FedSecureError] = StoreError) -> bool:
    """Whether ``path`` is a folder, or a link to one. Raises ``error`` where that cannot be seen."""
    with faults(path, "looked at", error):
        return path.is_dir()


def sync_folder(path: Path) -> None:
    """Make creations, renames and removals in ``path`` durable. Raises ``OSError``."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_all(number: int, data: bytes) -> None:
    """Write all of ``data`` to an open file. Raises ``OSError``."""
    view = memoryview(data)
    while view:
        view = view[os.write(number, view) :]


def create_durably(path: Path, data: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Create ``path`` with ``mode`` and ``data``; never overwrites and never follows a link. On the disk on return.

    Raises ``OSError``, ``FileExistsError`` among them; then nothing of ours is left behind.
    """
    with _created(path, mode) as file:
        file.write(data)
    try:
        sync_folder(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = PRIVATE_FILE, error: type[FedSecureError] = StoreError) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` when the block ends: durably and in one step; a link at
    ``path`` is replaced, not followed.

    Raises ``error`` on a fault of the file system; then, as when the block raises, the old content is still there.
    """
    beside = path.with_name(f".{os.urandom(8).hex()}{UNFINISHED}")
    with faults(path, "written", error):
        if path.is_dir() and not path.is_symlink():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with _created(beside, mode) as file:
            yield file
        try:
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_durably(
    path: Path, data: bytes, *, mode: int = PRIVATE_FILE, error: type[FedSecureError] = StoreError
) -> None:
    """Write or replace ``path``, as ``replacing`` does. Raises ``error`` on a fault of the file system."""
    with replacing(path, mode=mode, error=error) as file:
        file.write(data)


def remove_unfinished(folder: Path) -> None:
    """Remove what a crash left half written. Only for the one process that writes there. Raises ``StoreError``."""
    with faults(folder, "cleaned"):
        for left_over in folder.glob(f".*{UNFINISHED}"):
            left_over.unlink(missing_ok=True)


def make_folder(path: Path, *, private: bool = False, error: type[FedSecureError] = StoreError) -> Path:
    """Make ``path`` and the folders above it where they are missing, durably; ``private`` gives ``path`` itself mode
    0700. What is there already is left as it is. Raises ``error`` when it cannot be made, or is no folder."""
    with faults(path, "made a folder", error):
        missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
        for folder in reversed(missing):
            folder.mkdir(mode=PRIVATE_FOLDER if private and folder is path else 0o777, exist_ok=True)
            sync_folder(folder.parent)
        if private and missing:
            path.chmod(PRIVATE_FOLDER)  # whatever the umask was
    return path


def require_place(path: Path, *, error: type[FedSecureError] = StoreError) -> None:
    """Raise ``error`` unless ``path`` is a folder that can be written, or can be made one; makes nothing."""
    with faults(path, "made a folder", error):
        nearest = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def private_folder(path: Path, *, error: type[FedSecureError] = StoreError) -> Path:
    """Make ``path`` a folder of mode 0700, or check that it is one of ours.

    Raises ``error`` when it cannot be made, is a link or no folder, is another user's, or is open to others.
    """
    if not os.path.lexists(path):
        make_folder(path, private=True, error=error)
    with faults(path, "looked at", error):
        found = path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode):
        raise error(f"{path}: is not a folder (a link or a file)", hint="name a folder that nothing else uses")
    if found.st_uid != os.geteuid():
        raise error(f"{path}: belongs to another user", hint="run as the user who owns it")
    if mode & OTHERS:
        raise error(f"{path}: mode {mode:04o} lets others look into it", hint=f"chmod 700 {quoted(path)}")
    return path


def make_empty(path: Path) -> bool:
    """Make an empty file that only its owner may see (0600), on the disk on return, unless something is at ``path``,
    which is not opened: a process that closes a file gives up all its POSIX locks on it, those of SQLite among them.
    So no other thread gets beyond this for a file that one of them is still making.

    Returns whether it was made. Raises ``StoreError``."""
    with faults(path, "made"), _MAKING:
        try:
            create_durably(path, b"")
        except FileExistsError:
            return False
    return True


@contextlib.contextmanager
def _created(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A new file, flushed to the disk when the block ends and removed when it fails. Raises ``OSError``."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(number, "wb") as file:
            os.fchmod(number, mode)  # whatever the umask made of it
            yield file
            file.flush()
            os.fsync(number)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
