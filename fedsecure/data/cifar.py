"""CIFAR-10 and CIFAR-100 in their *binary* version: fixed-length records of label bytes and 3,072 pixel bytes.

The python version is a set of pickles, which can run code when they are read, so it is refused by name.
Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009; layout of the binary version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from fedsecure.data.files import check_memory, readable, require_file, shown
from fedsecure.errors import DataError
from fedsecure.tensors import Array

__all__ = ["CIFAR10_CLASSES", "CIFAR100_CLASSES", "read_cifar"]

PIXELS = (3, 32, 32)
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
#: The fine labels, in the order of their numbers.
_CIFAR100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man
    maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
    plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail
    snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout
    tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CIFAR100_CLASSES = tuple(_CIFAR100.split())
#: name -> (folder of the binary version, traces of the python version, bytes of labels before the pixels, files)
_LAYOUT: dict[str, tuple[str, tuple[str, ...], int, dict[str, tuple[str, ...]]]] = {
    "CIFAR10": (
        "cifar-10-batches-bin",
        ("cifar-10-batches-py", "cifar-10-python.tar.gz", "data_batch_1"),
        1,
        {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    ),
    "CIFAR100": (
        "cifar-100-binary",
        ("cifar-100-python", "cifar-100-python.tar.gz", "meta"),
        2,
        {"train": ("train.bin",), "test": ("test.bin",)},
    ),
}


def read_cifar(root: Path, name: Literal["CIFAR10", "CIFAR100"], split: str) -> tuple[Array, Array]:
    """Pixels uint8 (n, 3, 32, 32) and labels uint8 (n,). Raises ``DataError`` naming the files it expects and where."""
    folder_name, python_traces, label_bytes, files = _LAYOUT[name]
    expected = files[split]
    with readable(root):
        folder = next((f for f in (root, root / folder_name) if (f / expected[0]).is_file()), None)
        if folder is None:
            python_version = any((root / trace).exists() for trace in python_traces)
    if folder is None:
        what = (
            "holds the python version, whose files are pickles and can run code: not read"
            if python_version
            else "no data"
        )
        raise DataError(
            f"{shown(root)}: {name} ({split}): {what}; expected {', '.join(expected)} there or in its {folder_name}/",
            hint=f"unpack the binary version of {name} so that {shown(root / folder_name)} exists",
        )
    parts = [_records(folder / file, label_bytes) for file in expected]
    rows = np.concatenate(parts)  # (n, label_bytes + 3072)
    return rows[:, label_bytes:].reshape(len(rows), *PIXELS), rows[:, label_bytes - 1]


def _records(path: Path, label_bytes: int) -> Array:
    size, length = require_file(path), label_bytes + 3 * 32 * 32
    if size % length:
        raise DataError(f"{shown(path)}: {size} bytes are no whole number of records of {length}", hint="copy it again")
    check_memory(shown(path), size // length, PIXELS)
    with readable(path):
        return np.fromfile(path, dtype=np.uint8, count=size).reshape(-1, length)
