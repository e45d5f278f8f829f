"""What a node keeps of a run that is over, besides its own local state, to answer queries with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fedsecure.files import private_folder, write_durably
from fedsecure.tensors import Tensors
from fedsecure_node.store.database import Database
from fedsecure_node.store.files import read_digest_named

__all__ = ["FOLDER", "Served", "ServingBook"]

#: The folder in the store, its files named by their SHA-256.
FOLDER = "serving"


@dataclass(frozen=True, slots=True)
class Served:
    """A run whose shared parameters are kept: its plan's digest, their SHA-256, and since when."""

    digest: str
    file: str
    kept_ms: int


class ServingBook:
    """The table of served runs, with their files under ``serving/``."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._db = database
        self._folder = private_folder(folder / FOLDER)

    def keep(self, digest: str, data: bytes, now_ms: int) -> None:
        """Keep the safetensors form of a run's shared parameters: the file first, then the row; on the disk on return.
        Idempotent."""
        file = hashlib.sha256(data).hexdigest()
        write_durably(self._path(file), data)
        self._db.write("INSERT OR REPLACE INTO serving VALUES (?, ?, ?, ?)", (digest, file, len(data), now_ms))

    def all(self) -> list[Served]:
        """Every run whose parameters are kept, oldest first."""
        rows = self._db.rows("SELECT digest, file, kept_ms FROM serving ORDER BY kept_ms, digest")
        return [Served(row["digest"], row["file"], row["kept_ms"]) for row in rows]

    def find(self, digest: str) -> Served | None:
        """The run of this plan's digest, or ``None`` when nothing is kept of it."""
        row = self._db.row("SELECT digest, file, kept_ms FROM serving WHERE digest = ?", (digest,))
        return Served(row["digest"], row["file"], row["kept_ms"]) if row else None

    def tensors(self, served: Served) -> Tensors:
        """The shared parameters. Raises ``StoreError`` when the file is gone or was changed."""
        return Tensors.from_bytes(read_digest_named(self._path(served.file), served.file, "shared parameters"))

    def _path(self, file: str) -> Path:
        return self._folder / f"{file}.safetensors"
