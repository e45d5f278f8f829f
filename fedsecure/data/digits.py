"""scikit-learn's handwritten digits: 1,797 images of 8x8 pixels with 17 grey levels, inside the installed package.

Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository (the test
half).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsecure.data.classes import ClassNames
from fedsecure.data.records import labelled, require_shape

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.data.settings import DigitsSource
    from fedsecure.plan.task import Task

__all__ = ["SHAPE", "load_digits"]

#: The brightest grey level; 16 stands for a fully inked 4x4 block.
LEVELS = 16
#: (channels, height, width) of an image.
SHAPE = (1, 8, 8)


def load_digits(source: DigitsSource, task: Task) -> Dataset:
    """Images (n, 1, 8, 8), pixels / 16 in [0, 1], own names ``"0"`` to ``"9"``. Raises ``DataError`` on another shape
    or unknown names."""
    from sklearn.datasets import load_digits as bundled

    where = "scikit-learn's digits"
    require_shape(where, SHAPE, task)
    bunch = bundled()
    names = ClassNames(source.classes, source.ignore, task.classes, where)
    index = np.asarray(names.indices([str(d) for d in range(10)], "classes"), dtype=np.int64)[bunch.target]  # (1797,)
    pixels = bunch.images.astype(np.float32) / np.float32(LEVELS)  # (1797, 8, 8)
    return labelled(where, pixels[:, None], index, task)
