"""Salted ids: numbers by which whoever holds the salt, and nobody else, finds a person again.

A hash without a secret would not do: who has a record could hash it and look. The salt is drawn once for a folder of
reports and stays beside it, readable by its owner alone, as does the table that leads ids back to rows.
"""

from __future__ import annotations

import csv
import hmac
import io
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsecure.errors import ConfigError, DataError
from fedsecure.files import faults, make_folder, shown, write_durably
from fedsecure_attacks.records import Labelled

__all__ = ["SALT", "TABLE", "Salt", "read_or_draw", "rows_of", "write_ids"]

SALT, TABLE = "record-ids.salt", "record-ids.csv"
BYTES = 32


@dataclass(frozen=True, eq=False)
class Salt:
    """``secret``: 32 bytes."""

    secret: bytes = field(repr=False)

    def id(self, fingerprint: bytes) -> str:
        """16 hex digits of HMAC-SHA-256 (RFC 2104) of a record's ``fingerprint``."""
        return hmac.digest(self.secret, fingerprint, "sha256").hex()[:16]


def read_or_draw(folder: Path) -> Salt:
    """The salt of ``folder``, drawn at the first time. Raises ``DataError`` for one that is damaged."""
    path = folder / SALT
    if path.exists():
        with faults(path, "read", DataError):
            text = path.read_text(encoding="ascii", errors="replace").strip()
        if len(text) != 2 * BYTES or not set(text) <= set("0123456789abcdef"):
            raise DataError(f"{shown(path)}: not a salt", hint="remove it; ids of earlier reports are lost with it")
        return Salt(bytes.fromhex(text))
    make_folder(folder, private=True, error=ConfigError)
    salt = Salt(secrets.token_bytes(BYTES))
    write_durably(path, f"{salt.secret.hex()}\n".encode(), error=ConfigError)
    return salt


def rows_of(parts: Iterable[Labelled]) -> dict[bytes, tuple[str, int]]:
    """Fingerprint -> (whose, row in their file), the first where a record repeats."""
    found: dict[bytes, tuple[str, int]] = {}
    for part in parts:
        for row, key in enumerate(part.fingerprints()):
            found.setdefault(key, (part.name, row))
    return found


def write_ids(folder: Path, salt: Salt, report: Mapping[str, Any], parts: Iterable[Labelled]) -> Path:
    """Which row of which file each id of ``report`` is, as CSV, mode 0600. Raises ``ConfigError``."""
    named = {entry["record"] for entry in report.get("worst", ())}
    named |= {pair[key] for pair in report.get("gallery", ()) for key in ("member_id", "nonmember_id")}
    known = {salt.id(key): place for key, place in rows_of(parts).items()}
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("id", "file", "row"))
    writer.writerows((key, *known[key]) for key in sorted(named & set(known)))
    path = folder / TABLE
    write_durably(path, stream.getvalue().encode(), error=ConfigError)
    return path
