"""Files of records: that they are there and are files, how they are named in messages, and how much may be loaded."""

from __future__ import annotations

import math
import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsecure.errors import DataError
from fedsecure.files import faults, shown

__all__ = [
    "MAX_DATASET_BYTES",
    "check_memory",
    "composed",
    "listed",
    "own_name",
    "readable",
    "require_file",
    "require_folder",
    "shown",
]

#: Records are held in memory as float32. More than this (bytes) is refused before it is allocated: it is a mistake in
#: the source or the plan far more often than a data set, and a node that swaps misses every deadline.
MAX_DATASET_BYTES = 16 * 2**30


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names in quotes, the first ``most`` of them, then how many more there are."""
    everything = [f"'{shown(n)}'" for n in names]
    rest = len(everything) - most
    return ", ".join(everything[:most]) + (f" and {rest} more" if rest > 0 else "")


def composed(name: str) -> str:
    """A name as names are compared: composed (NFC), whatever wrote it, and without spaces around."""
    return unicodedata.normalize("NFC", name).strip()


def own_name(path: Path) -> str:
    """The last part of a path as text: UTF-8 whatever the locale says, composed (NFC) whatever the file system did."""
    return unicodedata.normalize("NFC", os.fsencode(path.name).decode("utf-8", "surrogateescape"))


@contextmanager
def readable(path: Path, done: str = "read") -> Iterator[None]:
    """Turns what the operating system says about ``path`` into a ``DataError`` of one line that names it: it cannot
    be ``done``."""
    with faults(path, done, DataError):
        try:
            yield
        except FileNotFoundError:
            raise DataError(f"{shown(path)}: no such file or folder", hint="check the path of the records") from None
        except PermissionError:
            raise DataError(
                f"{shown(path)}: permission denied", hint="let the user that this runs as read it, and nobody else"
            ) from None


def _status(path: Path) -> os.stat_result:
    with readable(path):
        return path.stat()


def require_file(path: Path) -> int:
    """Size of a regular file in bytes. Raises ``DataError`` when it is absent, empty, or something else (a folder, a
    pipe)."""
    status = _status(path)
    if stat.S_ISDIR(status.st_mode):
        raise DataError(f"{shown(path)}: is a folder where a file is due", hint="name the file itself")
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{shown(path)}: is not a regular file", hint="name a file that can be read twice, not a pipe")
    if status.st_size == 0:
        raise DataError(f"{shown(path)}: is empty (0 bytes)", hint="was it copied completely?")
    return status.st_size


def require_folder(path: Path) -> None:
    """Raises ``DataError`` when ``path`` is not a folder."""
    if not stat.S_ISDIR(_status(path).st_mode):
        raise DataError(f"{shown(path)}: is not a folder", hint="name the folder that holds the data")


def check_memory(where: str, records: int, shape: tuple[int, ...]) -> None:
    """Raises ``DataError`` when ``records`` float32 records of ``shape`` are more than ``MAX_DATASET_BYTES``."""
    nbytes = records * math.prod(shape) * 4
    if nbytes > MAX_DATASET_BYTES:
        raise DataError(
            f"{where}: {records} records of shape {list(shape)} need {nbytes / 2**30:.1f} GiB of memory "
            f"(allowed: {MAX_DATASET_BYTES / 2**30:.0f} GiB)",
            hint="take part with fewer or smaller records",
        )
