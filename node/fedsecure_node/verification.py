"""Verifying a release log and the bytes it speaks of: offline, read-only, with nothing but the folder and the public
key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedsecure.crypto.signatures import identity_fingerprint, verify
from fedsecure.errors import ConfigError, ReleaseLogError
from fedsecure.files import exists, is_folder
from fedsecure.locks import file_lock
from fedsecure_node.database import Database
from fedsecure_node.logchain import Head, Record, verify_log
from fedsecure_node.releases import Release, fold
from fedsecure_node.store import read_head

__all__ = ["Verified", "verify_store"]


@dataclass(frozen=True, slots=True)
class Verified:
    """A log that is whole: its records, its releases, and the key that signed all of it."""

    records: tuple[Record, ...]
    releases: dict[int, Release]
    identity: str


def verify_store(folder: Path, public_bytes: bytes) -> Verified:
    """Check chain, signatures, order and end of the log, and that each release's bytes are those that it names.

    Changes nothing. Raises ``ReleaseLogError`` naming the record, ``ConfigError`` when there is no store,
    ``StoreError`` when it cannot be read.
    """
    if not is_folder(folder):
        raise ConfigError(f"{folder}: no store", hint="check --dir")
    path = folder / "releases.jsonl"
    with file_lock(folder / "releases.lock", exclusive=False):
        head = _head(folder)
        found = verify_log(path, head, partial(verify, public_bytes))
    releases = fold(found.records)
    for release in releases.values():
        _check_bytes(folder, release)
    return Verified(found.records, releases, identity_fingerprint(public_bytes))


def _head(folder: Path) -> Head | None:
    path = folder / "store.db"
    if not exists(path):
        return None
    database = Database(path, read_only=True)
    try:
        return read_head(database)
    finally:
        database.close()


def _check_bytes(folder: Path, release: Release) -> None:
    path = folder / "releases" / f"{release.payload}.bin"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ReleaseLogError(
            f"release {release.number}: its bytes cannot be read: {path}: {error.strerror}",
            hint="restore the file from a backup; the record itself is sound",
        ) from None
    if hashlib.sha256(data).hexdigest() != release.payload:
        raise ReleaseLogError(
            f"release {release.number}: {path} is not what the log says was released",
            hint="the file was damaged or changed after it was logged; restore it from a backup",
        )
