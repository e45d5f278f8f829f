"""Whether the files that a daemon works on are still the ones in its store: open files outlive their removal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedsecure.errors import StoreError
from fedsecure.files import faults

__all__ = ["FileWatch"]


class FileWatch:
    """Remembers which files are at ``paths``. Raises ``StoreError`` when that cannot be seen."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._due = {path: _identity(path) for path in paths}

    def check(self) -> None:
        """Raise ``StoreError`` naming a file that is gone, or that another one took the place of."""
        for path, due in self._due.items():
            found = _identity(path)
            if found != due:
                what = "is gone" if found is None else "is another file now"
                raise StoreError(
                    f"{path}: {what}: the store was removed or replaced under the running daemon",
                    hint="restore the store from a backup, then start the daemon again",
                )


def _identity(path: Path) -> tuple[int, int] | None:
    with faults(path, "looked at"):
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
    return found.st_dev, found.st_ino
