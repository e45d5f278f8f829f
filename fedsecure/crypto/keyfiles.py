"""Files of keys and certificates: secrets are made 0600 and never overwritten, and loose ones refuse to be read."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fedsecure.errors import CertificateError

__all__ = [
    "all_or_nothing",
    "is_folder",
    "make_private_folder",
    "present",
    "read_public",
    "read_secret",
    "replace_secret",
    "sync_folder",
    "write_public",
    "write_secret",
]

#: Modes of a secret file and of a folder that we make for secrets.
SECRET_MODE = 0o600
PRIVATE_FOLDER_MODE = 0o700
#: Mode of what everybody may read: certificates, requests, public keys, revocation lists.
PUBLIC_MODE = 0o644
#: Permission bits that let somebody else than the owner at a secret.
_OTHERS = 0o077
#: No key, certificate or revocation list of ours comes near this size (bytes).
MAX_FILE_BYTES = 4 << 20


def make_private_folder(path: Path) -> None:
    """Make ``path`` (and its parents) if it is missing; the folder itself gets mode 0700.

    Raises ``CertificateError`` when it cannot be made, or when it exists and is not a folder.
    """
    try:
        if not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=PRIVATE_FOLDER_MODE)
            sync_folder(path.parent)
    except OSError as error:
        raise CertificateError(f"{path}: this folder cannot be made: {error.strerror}", hint="choose another") from None


def present(path: Path) -> bool:
    """Whether anything is at ``path``, a dangling link included. A folder that may not be entered counts as empty: what
    is done next in it says so."""
    return os.path.lexists(path)


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder, or a link to one, that we may see."""
    try:
        return path.is_dir()
    except OSError:
        return False


def write_secret(path: Path, data: bytes) -> None:
    """Create ``path`` with mode 0600 and ``data``, durable on return. Never overwrites and never follows a link.

    Raises ``CertificateError`` when something is there already (a link, dangling or not, included) or on a fault of
    the file system; then nothing of ours is left behind.
    """
    try:
        _create(path, data, SECRET_MODE)
    except FileExistsError:
        raise CertificateError(
            f"{path}: exists already, and a secret is never overwritten",
            hint="move it away first, or use another folder",
        ) from None
    except OSError as error:
        raise CertificateError(f"{path}: cannot be written: {error.strerror}", hint="check the folder") from None


def write_public(path: Path, data: bytes) -> None:
    """Write or replace ``path`` with mode 0644, atomically and durably; a link at ``path`` is replaced, not followed.

    Raises ``CertificateError`` on a fault of the file system; then the old content is still there.
    """
    _replace(path, data, PUBLIC_MODE)


def replace_secret(path: Path, data: bytes) -> None:
    """Write or replace ``path`` with mode 0600, atomically and durably: for private records that change, not for keys.

    Raises ``CertificateError`` on a fault of the file system; then the old content is still there.
    """
    _replace(path, data, SECRET_MODE)


@contextlib.contextmanager
def all_or_nothing(*paths: Path) -> Iterator[None]:
    """Remove ``paths`` when the block fails. Enter it only once they are known to be ours: an exclusive creation of the
    first of them tells two that begin at once apart."""
    try:
        yield
    except BaseException:
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink()
        raise


def read_secret(path: Path, what: str = "private key") -> bytes:
    """The bytes of a secret file. Refuses, naming mode and fix, a file that others can read or that is not ours.

    ``what`` names it in messages. Raises ``CertificateError``: missing, not a regular file, owned by another user,
    accessible to group or others, in a folder that everybody can write to, or larger than ``MAX_FILE_BYTES``.
    """
    with _open(path, what) as descriptor:
        status = os.fstat(descriptor.number)
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid != os.geteuid():
            raise CertificateError(
                f"{path}: this {what} belongs to user {status.st_uid}, but user {os.geteuid()} runs this",
                hint=f"run as its owner, or chown {os.geteuid()} {path}",
            )
        if mode & _OTHERS:
            raise CertificateError(
                f"{path}: this {what} has mode {mode:04o}, so others than its owner can get at it",
                hint=f"chmod 600 {path}",
            )
        _check_folder(path, what)
        return descriptor.read(path, what)


def read_public(path: Path, what: str) -> bytes:
    """The bytes of a file that need not be secret. ``what`` names it in messages, as in "CA certificate".

    Raises ``CertificateError``: missing, not a regular file, not readable, or larger than ``MAX_FILE_BYTES``.
    """
    with _open(path, what) as descriptor:
        return descriptor.read(path, what)


def sync_folder(path: Path) -> None:
    """Make creations and renames in ``path`` durable. Raises ``OSError``."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class _Descriptor:
    """An open file that closes itself, and reads itself whole up to the size limit."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> _Descriptor:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.number)

    def read(self, path: Path, what: str) -> bytes:
        parts: list[bytes] = []
        left = MAX_FILE_BYTES + 1
        while left > 0 and (part := os.read(self.number, left)):
            parts.append(part)
            left -= len(part)
        if left <= 0:
            raise CertificateError(f"{path}: larger than {MAX_FILE_BYTES} bytes, so not a {what}")
        return b"".join(parts)


def _open(path: Path, what: str) -> _Descriptor:
    try:
        # O_NONBLOCK: opening a named pipe must not wait for its other end
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise CertificateError(f"{path}: no such file ({what})", hint="check the path") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CertificateError(f"{path}: this {what} cannot be read: {reason}", hint="check its permissions") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise CertificateError(f"{path}: is not a regular file, so not a {what}", hint="check the path")
    return _Descriptor(number)


def _check_folder(path: Path, what: str) -> None:
    """Whoever can write to the folder can put another key in the place of ours."""
    folder = path.parent
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise CertificateError(
            f"{folder}: everybody can write to the folder of this {what} (mode {mode:04o})", hint=f"chmod 700 {folder}"
        )


def _create(path: Path, data: bytes, mode: int) -> None:
    """Exclusive creation; raises ``OSError``. What a failed attempt left behind is removed."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        try:
            os.fchmod(number, mode)  # whatever the umask made of it
            view = memoryview(data)
            while view:
                view = view[os.write(number, view) :]
            os.fsync(number)
        finally:
            os.close(number)
        sync_folder(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Write to a new file beside ``path``, then rename it over ``path``."""
    fresh = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "Is a directory")
        _create(fresh, data, mode)
        try:
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise CertificateError(f"{path}: cannot be written: {error.strerror}", hint="check the folder") from None
