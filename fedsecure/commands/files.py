"""Writing result files so that a crash leaves the old one or the new one, never half of either."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fedsecure.errors import ConfigError

__all__ = ["make_folder", "write_atomically"]


def make_folder(path: Path) -> None:
    """Make a folder and its parents. Raises ``ConfigError`` naming the path when it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be made a folder: {error.strerror}", hint="choose another one") from None


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside ``path``, fsync, rename. Raises ``ConfigError`` naming the path when it cannot be written."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}", hint="choose another folder") from None
