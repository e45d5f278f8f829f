"""The image data sets that torchvision knows by name, read from a local folder. Nothing is downloaded or unpickled.

MNIST, Fashion-MNIST and KMNIST are found in torchvision's own layout (``PATH/NAME/raw/``) and flat, as distributions
package them (``PATH/``), gzipped or not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsecure.data.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES, read_cifar
from fedsecure.data.classes import ClassNames
from fedsecure.data.files import readable, require_folder, shown
from fedsecure.data.idx import read_idx
from fedsecure.data.records import labelled, require_shape
from fedsecure.errors import DataError
from fedsecure.tensors import Array

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.data.settings import TorchvisionSource
    from fedsecure.plan.task import Task

__all__ = ["CLASS_NAMES", "SHAPES", "load_torchvision"]

#: name -> its own class names, in the order of its label numbers.
CLASS_NAMES: dict[str, tuple[str, ...]] = {
    "MNIST": tuple("0123456789"),
    "FashionMNIST": (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    "KMNIST": ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"),
    "CIFAR10": CIFAR10_CLASSES,
    "CIFAR100": CIFAR100_CLASSES,
}  # fmt: skip
#: name -> (channels, height, width) of its images.
SHAPES: dict[str, tuple[int, int, int]] = {
    name: (3, 32, 32) if name.startswith("CIFAR") else (1, 28, 28) for name in CLASS_NAMES
}
_IDX_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def load_torchvision(source: TorchvisionSource, task: Task) -> Dataset:
    """Images (n, channels, H, W) in the order of the files, bytes / 255. Raises ``DataError`` naming what is missing,
    and where."""
    require_folder(source.path)
    where = f"{shown(source.path)} ({source.name}, {source.split})"
    own = CLASS_NAMES[source.name]
    names = ClassNames(source.classes, source.ignore, task.classes, where)
    of_label = np.asarray(names.indices(own, "classes"), dtype=np.int64)  # (classes of the set,)
    if source.name in ("CIFAR10", "CIFAR100"):
        x, y = read_cifar(source.path, source.name, source.split)
    else:
        x, y = _read_mnist(source.path, source.name, source.split)
    if len(x) != len(y):
        raise DataError(f"{where}: {len(x)} images do not go with {len(y)} labels", hint="copy both files again")
    if len(y) and int(y.max()) >= len(own):
        raise DataError(
            f"{where}: label {int(y.max())} is not one of its {len(own)} classes", hint="copy the files again"
        )
    require_shape(where, x.shape[1:], task)
    return labelled(where, x, of_label[y], task)


def _read_mnist(root: Path, name: str, split: str) -> tuple[Array, Array]:
    """Images uint8 (n, 1, H, W) and labels uint8 (n,)."""
    files = _IDX_FILES[split]
    with readable(root):
        held = [_held(folder, files) for folder in (root, root / "raw", root / name / "raw", root / name)]
    best = max(held, key=len)  # of equals the first: the two files come from one folder
    missing = [file for file in files if file not in best]
    if missing:
        raise DataError(
            f"{shown(root)}: {name} ({split}): no {' and no '.join(missing)}, plain or .gz, there or in {name}/raw/",
            hint="put the four IDX files of the data set there; nothing is downloaded",
        )
    return read_idx(best[files[0]], 3)[:, None], read_idx(best[files[1]], 1)


def _held(folder: Path, files: tuple[str, ...]) -> dict[str, Path]:
    """Those of ``files`` that lie in ``folder``, plain rather than gzipped."""
    candidates = {file: (folder / file, folder / f"{file}.gz") for file in files}
    found = {file: next((p for p in paths if p.is_file()), None) for file, paths in candidates.items()}
    return {file: path for file, path in found.items() if path is not None}
