"""Files of keys and certificates: secrets are made 0600 and never overwritten, and loose ones refuse to be read."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fedsecure.errors import CertificateError
from fedsecure.files import (
    OTHERS,
    PRIVATE_FILE,
    PUBLIC_FILE,
    advice,
    create_durably,
    make_folder,
    quoted,
    write_durably,
)

__all__ = [
    "all_or_nothing",
    "make_private_folder",
    "present",
    "read_public",
    "read_secret",
    "replace_secret",
    "write_public",
    "write_secret",
]

#: No key, certificate or revocation list of ours comes near this size (bytes).
MAX_FILE_BYTES = 4 << 20


def make_private_folder(path: Path) -> None:
    """Make ``path`` (and its parents) if it is missing; the folder itself gets mode 0700.

    Raises ``CertificateError`` when it cannot be made, or when it exists and is not a folder.
    """
    make_folder(path, private=True, error=CertificateError)


def present(path: Path) -> bool:
    """Whether anything is at ``path``, a dangling link included. A folder that may not be entered counts as empty: what
    is done next in it says so."""
    return os.path.lexists(path)


def write_secret(path: Path, data: bytes) -> None:
    """Create ``path`` with mode 0600 and ``data``, durable on return. Never overwrites and never follows a link.

    Raises ``CertificateError`` when something is there already (a link, dangling or not, included) or on a fault of
    the file system; then nothing of ours is left behind.
    """
    try:
        create_durably(path, data)
    except FileExistsError:
        raise CertificateError(
            f"{path}: exists already, and a secret is never overwritten",
            hint="move it away first, or use another folder",
        ) from None
    except OSError as error:
        hint = advice(error, "check the folder")
        raise CertificateError(f"{path}: cannot be written: {error.strerror}", hint=hint) from None


def write_public(path: Path, data: bytes) -> None:
    """Write or replace ``path`` with mode 0644, atomically and durably; a link at ``path`` is replaced, not followed.

    Raises ``CertificateError`` on a fault of the file system; then the old content is still there.
    """
    write_durably(path, data, mode=PUBLIC_FILE, error=CertificateError)


def replace_secret(path: Path, data: bytes) -> None:
    """Write or replace ``path`` with mode 0600, atomically and durably: for private records that change, not for keys.

    Raises ``CertificateError`` on a fault of the file system; then the old content is still there.
    """
    write_durably(path, data, mode=PRIVATE_FILE, error=CertificateError)


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
                hint=f"run as its owner, or chown {os.geteuid()} {quoted(path)}",
            )
        if mode & OTHERS:
            raise CertificateError(
                f"{path}: this {what} has mode {mode:04o}, so others than its owner can get at it",
                hint=f"chmod 600 {quoted(path)}",
            )
        _check_folder(path, what)
        return descriptor.read(path, what)


def read_public(path: Path, what: str) -> bytes:
    """The bytes of a file that need not be secret. ``what`` names it in messages, as in "CA certificate".

    Raises ``CertificateError``: missing, not a regular file, not readable, or larger than ``MAX_FILE_BYTES``.
    """
    with _open(path, what) as descriptor:
        return descriptor.read(path, what)


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
        hint = advice(error, "check its permissions") if isinstance(error, OSError) else "check the path"
        raise CertificateError(f"{path}: this {what} cannot be read: {reason}", hint=hint) from None
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
            f"{folder}: everybody can write to the folder of this {what} (mode {mode:04o})",
            hint=f"chmod 700 {quoted(folder)}",
        )
