"""The CA's register of what it issued and revoked: one JSON file, replaced atomically, checked entry by entry."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from fedsecure.crypto.certificates import as_utc, when
from fedsecure.crypto.keyfiles import read_public, replace_secret
from fedsecure.crypto.names import Identity, check_federation, describe
from fedsecure.crypto.revocation import REASONS
from fedsecure.errors import CertificateError, ConfigError
from fedsecure.files import advice

__all__ = ["INDEX_FILE", "Index", "IssuedCertificate", "locked", "read_index", "write_index"]

INDEX_FILE = "index.json"
_FORMAT = 1
_SERIAL = re.compile(r"[0-9a-f]{1,40}")


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """One line of the register. ``serial``: lower-case hex. ``key``: the public key's fingerprint. Times: UTC."""

    serial: str
    role: str
    name: str
    fingerprint: str
    key: str
    hosts: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    revoked_at: datetime | None = None
    reason: str = ""

    def state(self, now: datetime) -> str:
        """``live``, ``revoked`` or ``expired`` at ``now``."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if as_utc(now) > self.not_after else "live"

    def __str__(self) -> str:
        return f"{describe(self.role, self.name)} (serial {self.serial}, until {when(self.not_after)})"


@dataclass(frozen=True, slots=True)
class Index:
    """The whole register. ``crl_number`` is the number of the last revocation list that was made."""

    federation: str
    crl_number: int
    certificates: tuple[IssuedCertificate, ...] = ()

    def live(self, now: datetime) -> tuple[IssuedCertificate, ...]:
        """Those that would be accepted at ``now``."""
        return tuple(c for c in self.certificates if c.state(now) == "live")

    def with_issued(self, issued: IssuedCertificate) -> Index:
        """The register with one line more."""
        return replace(self, certificates=(*self.certificates, issued))

    def with_revoked(self, serials: frozenset[str], at: datetime, reason: str) -> Index:
        """The register with ``serials`` marked as revoked, and the next number for the revocation list."""
        marked = tuple(
            replace(c, revoked_at=at, reason=reason) if c.serial in serials and c.revoked_at is None else c
            for c in self.certificates
        )
        return replace(self, certificates=marked, crl_number=self.crl_number + 1)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other command out of this CA folder. Raises ``CertificateError`` at once when one is at work in it."""
    try:
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise CertificateError(
                f"{folder}: cannot be used: {error.strerror}", hint=advice(error, "check the permissions of the folder")
            ) from None
        raise CertificateError(
            f"{folder}: no CA here: {error.strerror}", hint="give the CA's folder, or make one with ca init"
        ) from None
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CertificateError(f"{folder}: another command is working on this CA", hint="try again") from None
    finally:
        os.close(number)


def write_index(folder: Path, index: Index) -> None:
    """Replace the register, durably. Raises ``CertificateError``."""
    raw = {"format": _FORMAT, **asdict(index)}
    text = json.dumps(raw, indent=1, default=lambda moment: moment.isoformat())
    replace_secret(folder / INDEX_FILE, text.encode() + b"\n")


def read_index(folder: Path) -> Index:
    """Read the register strictly. Raises ``CertificateError`` naming the file and the entry that is wrong."""
    path = folder / INDEX_FILE
    data = read_public(path, "register of the CA")
    try:
        return _index(json.loads(data))
    except (ValueError, TypeError, KeyError, RecursionError, ConfigError) as error:
        reason = (str(error).splitlines() or [""])[0][:120]
        raise CertificateError(
            f"{path}: the register of the CA is damaged: {reason}", hint="restore it from a backup"
        ) from None


def _index(raw: Any) -> Index:
    """The register. Raises what ``_certificate`` does."""
    if type(raw) is not dict or set(raw) != {"format", *Index.__slots__} or raw["format"] != _FORMAT:
        raise ValueError("it has other keys, or another format, than this version writes")
    if type(raw["crl_number"]) is not int or raw["crl_number"] < 0:
        raise ValueError("crl_number is not a count")
    check_federation(raw["federation"])
    certificates = []
    for position, item in enumerate(raw["certificates"]):
        try:
            certificates.append(_certificate(item, raw["federation"]))
        except (ValueError, TypeError, KeyError, ConfigError) as error:
            raise ValueError(f"entry {position}: {error}") from None
    if len({c.serial for c in certificates}) != len(certificates):
        raise ValueError("a serial number is there twice")
    return Index(raw["federation"], raw["crl_number"], tuple(certificates))


def _certificate(raw: Any, federation: str) -> IssuedCertificate:
    """One entry. Raises ``ValueError``, ``TypeError``, ``KeyError`` or ``ConfigError``."""
    if type(raw) is not dict or set(raw) != set(IssuedCertificate.__slots__):
        raise ValueError("it has other keys than this version writes")
    texts = ("serial", "role", "name", "fingerprint", "key", "not_before", "not_after", "reason")
    if not all(isinstance(raw[key], str) for key in texts) or not all(isinstance(h, str) for h in raw["hosts"]):
        raise TypeError("a text is due where something else stands")
    Identity(federation, raw["role"], raw["name"])
    if not _SERIAL.fullmatch(raw["serial"]):
        raise ValueError("its serial number is malformed")
    revoked_at = None if raw["revoked_at"] is None else _moment(raw["revoked_at"])
    if (revoked_at is not None and raw["reason"] not in REASONS) or (revoked_at is None and raw["reason"]):
        raise ValueError("its revocation has no moment or no known reason")
    times = {"not_before": _moment(raw["not_before"]), "not_after": _moment(raw["not_after"])}
    return IssuedCertificate(**{**raw, **times, "hosts": tuple(raw["hosts"]), "revoked_at": revoked_at})


def _moment(text: str) -> datetime:
    return as_utc(datetime.fromisoformat(text))
