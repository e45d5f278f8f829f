"""Writing a data set as an ``.npz`` that ``NpzSource`` reads back bit for bit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsecure.data.files import readable

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset

__all__ = ["save_npz"]


def save_npz(data: Dataset, path: Path) -> None:
    """Write ``x`` (float32, as it is) and ``y`` (class names) to ``path``, readable by its owner only, replacing it
    in one step.

    Equal data sets give equal files. Raises ``DataError`` when it cannot be written.
    """
    names = np.asarray(data.classes, dtype=np.str_)[data.y]  # (n,)
    draft = path.with_name(path.name + ".part")
    with readable(path, "written"):
        draft.unlink(missing_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as stream:
                np.savez(stream, x=data.x, y=names)
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
