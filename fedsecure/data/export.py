"""Writing a data set as an ``.npz`` that ``NpzSource`` reads back bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsecure.errors import DataError
from fedsecure.files import replacing

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset

__all__ = ["save_npz"]


def save_npz(data: Dataset, path: Path) -> None:
    """Write ``x`` (float32, as it is) and ``y`` (class names) to ``path``, readable by its owner only, replacing it
    in one step.

    Equal data sets give equal files. Raises ``DataError`` when it cannot be written.
    """
    names = np.asarray(data.classes, dtype=np.str_)[data.y]  # (n,)
    with replacing(path, error=DataError) as file:
        np.savez(file, x=data.x, y=names)
