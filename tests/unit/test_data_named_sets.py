"""Data sets known by name: digits, the MNIST family in IDX files, CIFAR in its binary version."""

import gzip
import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from fedsecure.data import load_dataset
from fedsecure.data.settings import DigitsSource, TorchvisionSource
from fedsecure.data.torchvision_sets import CLASS_NAMES
from fedsecure.errors import DataError
from fedsecure.plan.task import ImageTask

FMNIST = Path(os.environ.get("FEDSECURE_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
DIGITS = tuple("0123456789")


def task(classes: tuple[str, ...], shape: tuple[int, int, int]) -> ImageTask:
    return ImageTask(kind="image", classes=classes, shape=shape)


def source(name: str, path: Path, **options: object) -> TorchvisionSource:
    return TorchvisionSource(kind="torchvision", name=name, path=path, **options)  # type: ignore[arg-type]


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


IMAGES = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
LABELS = np.array([9, 0, 3, 3, 1], np.uint8)


def write_idx(folder: Path, stem: str = "train", packed: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("images-idx3", IMAGES), ("labels-idx1", LABELS)):
        content = gzip.compress(idx(array)) if packed else idx(array)
        (folder / f"{stem}-{name}-ubyte{'.gz' * packed}").write_bytes(content)


# --- digits ---


def test_digits_are_sixteenths() -> None:
    data = load_dataset(DigitsSource(kind="digits"), task(DIGITS, (1, 8, 8)))
    assert data.x.shape == (1797, 1, 8, 8)
    assert data.counts().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert set(np.unique(data.x * 16)) == set(range(17))
    assert hashlib.sha256((data.x * 16).astype(np.uint8).tobytes() + data.y.tobytes()).hexdigest() == (
        "65e5b4619795efb40c1082f4c350c049e4ad552200d369b6ae99e21eef5e72c5"
    )


def test_digits_map_by_name() -> None:
    names = {str(d): "even" if d % 2 == 0 else "odd" for d in range(1, 10)}
    data = load_dataset(DigitsSource(kind="digits", classes=names, ignore=("0",)), task(("odd", "even"), (1, 8, 8)))
    assert data.counts().tolist() == [182 + 183 + 182 + 179 + 180, 177 + 181 + 181 + 174]


def test_digits_of_another_shape() -> None:
    with pytest.raises(DataError, match=r"digits: records of shape \[1, 8, 8\] where the plan asks for \[1, 28, 28\]"):
        load_dataset(DigitsSource(kind="digits"), task(DIGITS, (1, 28, 28)))
    with pytest.raises(DataError, match="classes '2', '3', .*not among the plan's classes '0', '1'"):
        load_dataset(DigitsSource(kind="digits"), task(("0", "1"), (1, 8, 8)))


# --- IDX ---


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("inside", ["", "raw", "MNIST/raw", "MNIST"])
def test_idx_files_where_torchvision_and_distributions_put_them(tmp_path: Path, inside: str, packed: bool) -> None:
    write_idx(tmp_path / inside, packed=packed)
    data = load_dataset(source("MNIST", tmp_path), task(DIGITS, (1, 28, 28)))
    np.testing.assert_array_equal(data.x[:, 0], IMAGES.astype(np.float32) / np.float32(255))
    assert data.y.tolist() == LABELS.tolist()


def test_the_test_split_has_files_of_its_own(tmp_path: Path) -> None:
    write_idx(tmp_path, "t10k")
    assert len(load_dataset(source("MNIST", tmp_path, split="test"), task(DIGITS, (1, 28, 28)))) == 5
    with pytest.raises(DataError, match=r"MNIST \(train\): no train-images-idx3-ubyte and no train-labels-idx1-ubyte"):
        load_dataset(source("MNIST", tmp_path), task(DIGITS, (1, 28, 28)))


def test_images_and_labels_come_from_one_folder(tmp_path: Path) -> None:
    write_idx(tmp_path / "raw")
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(LABELS[::-1]))
    data = load_dataset(source("KMNIST", tmp_path), task(CLASS_NAMES["KMNIST"], (1, 28, 28)))
    assert data.y.tolist() == LABELS.tolist()


def test_own_class_names_map_by_name(tmp_path: Path) -> None:
    write_idx(tmp_path)
    plan = tuple(reversed(CLASS_NAMES["FashionMNIST"]))
    data = load_dataset(source("FashionMNIST", tmp_path), task(plan, (1, 28, 28)))
    assert [plan[i] for i in data.y] == ["Ankle boot", "T-shirt/top", "Dress", "Dress", "Trouser"]
    with pytest.raises(DataError, match="classes 'Ankle boot', 'Bag', .* not among the plan's classes '0', '1'"):
        load_dataset(source("FashionMNIST", tmp_path), task(DIGITS, (1, 28, 28)))


def test_only_some_classes(tmp_path: Path) -> None:
    write_idx(tmp_path)
    options = {"ignore": tuple("0245678"), "classes": {"9": "round", "3": "round", "1": "straight"}}
    data = load_dataset(source("MNIST", tmp_path, **options), task(("straight", "round"), (1, 28, 28)))
    assert data.y.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", r"is empty \(0 bytes\)"),
        (b"\0\0", "ends after 2 of 16 bytes"),
        (idx(LABELS) + b"\0" * 20, "not an IDX file of bytes with 3 axes"),
        (b"<html>404 not found</html>", "not an IDX file of bytes with 3 axes"),
        (idx(IMAGES)[:-1], "ends after 3919 of 3920 bytes"),
        (idx(IMAGES) + b"\0", "goes on after the 5 records"),
        (bytes((0, 0, 8, 3)) + b"\xff" * 12, "4294967295 records of shape .* need"),
        (idx(IMAGES[:4]), "4 images do not go with 5 labels"),
        (idx(IMAGES[:, :27]), r"shape \[1, 27, 28\] where the plan asks for \[1, 28, 28\]"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_that_are_refused(tmp_path: Path, content: bytes, match: str, packed: bool) -> None:
    write_idx(tmp_path, packed=packed)
    path = tmp_path / f"train-images-idx3-ubyte{'.gz' * packed}"
    path.write_bytes(gzip.compress(content) if packed and content else content)
    with pytest.raises(DataError, match=match):
        load_dataset(source("MNIST", tmp_path), task(DIGITS, (1, 28, 28)))


def test_damaged_gzip(tmp_path: Path) -> None:
    write_idx(tmp_path, packed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for damaged in (whole[:100], whole[:-4], whole[:50] + bytes([whole[50] ^ 255]) + whole[51:], b"not gzip"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: "):
            load_dataset(source("MNIST", tmp_path), task(DIGITS, (1, 28, 28)))


def test_labels_beyond_the_classes(tmp_path: Path) -> None:
    write_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(LABELS + 1))
    with pytest.raises(DataError, match="label 10 is not one of its 10 classes"):
        load_dataset(source("MNIST", tmp_path), task(DIGITS, (1, 28, 28)))


def test_a_folder_that_is_absent_or_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        load_dataset(source("MNIST", tmp_path / "nowhere"), task(DIGITS, (1, 28, 28)))
    with pytest.raises(DataError, match=r"plain or \.gz, there or in MNIST/raw/") as caught:
        load_dataset(source("MNIST", tmp_path), task(DIGITS, (1, 28, 28)))
    assert "nothing is downloaded" in caught.value.hint


# --- CIFAR ---


def write_cifar10(folder: Path) -> np.ndarray:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (10, 3073), dtype=np.uint8)
    rows[:, 0] = np.arange(10)
    for i in range(5):
        (folder / f"data_batch_{i + 1}.bin").write_bytes(rows[2 * i : 2 * i + 2].tobytes())
    (folder / "test_batch.bin").write_bytes(rows[:1].tobytes())
    return rows


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-bin"])
def test_cifar10_binary(tmp_path: Path, inside: str) -> None:
    rows = write_cifar10(tmp_path / "c" / inside)
    plan = task(CLASS_NAMES["CIFAR10"], (3, 32, 32))
    data = load_dataset(source("CIFAR10", tmp_path / "c"), plan)
    assert data.y.tolist() == list(range(10))
    np.testing.assert_array_equal(data.x.reshape(10, -1), rows[:, 1:].astype(np.float32) / np.float32(255))
    assert len(load_dataset(source("CIFAR10", tmp_path / "c", split="test"), plan)) == 1


def test_cifar100_binary_uses_the_fine_labels(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(bytes((19, 99)) + b"\x80" * 3072)
    data = load_dataset(source("CIFAR100", tmp_path), task(CLASS_NAMES["CIFAR100"], (3, 32, 32)))
    assert [data.classes[i] for i in data.y] == ["worm"]
    assert len(CLASS_NAMES["CIFAR100"]) == len(set(CLASS_NAMES["CIFAR100"])) == 100


def test_the_python_version_of_cifar_is_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(Trap()))
    plan = task(CLASS_NAMES["CIFAR10"], (3, 32, 32))
    for path in (tmp_path, tmp_path / "cifar-10-batches-py"):
        with pytest.raises(DataError, match="holds the python version, whose files are pickles") as caught:
            load_dataset(source("CIFAR10", path), plan)
        assert "cifar-10-batches-bin" in caught.value.hint
    assert not (tmp_path / "sprung").exists()


def test_cifar_files_that_are_refused(tmp_path: Path) -> None:
    plan = task(CLASS_NAMES["CIFAR10"], (3, 32, 32))
    with pytest.raises(DataError, match=r"CIFAR10 \(train\): no data; expected data_batch_1\.bin, .*data_batch_5\.bin"):
        load_dataset(source("CIFAR10", tmp_path), plan)
    rows = write_cifar10(tmp_path / "cifar-10-batches-bin")
    batch = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    batch.write_bytes(rows[0].tobytes()[:-1])
    with pytest.raises(DataError, match=r"data_batch_3\.bin: 3072 bytes are no whole number of records of 3073"):
        load_dataset(source("CIFAR10", tmp_path), plan)
    batch.unlink()
    with pytest.raises(DataError, match=r"data_batch_3\.bin: no such file"):
        load_dataset(source("CIFAR10", tmp_path), plan)
    batch.write_bytes(b"\x0a" + rows[0].tobytes()[1:])
    with pytest.raises(DataError, match="label 10 is not one of its 10 classes"):
        load_dataset(source("CIFAR10", tmp_path), plan)


# --- the real Fashion-MNIST ---


@pytest.mark.fmnist
@pytest.mark.parametrize(
    ("split", "count", "digest"),
    [
        ("train", 60_000, "b7f4459dbf14f06f63b018ad9dd04ae70e5da9daeb326279af5c3db943c67e08"),
        ("test", 10_000, "85becac1ad785a4af13d68041f78ad7bbc4d7dd9091c4d8e90869bb47bb80296"),
    ],
)
def test_fashion_mnist(split: str, count: int, digest: str) -> None:
    if not (FMNIST / "train-images-idx3-ubyte.gz").exists():
        pytest.skip(f"put the four Fashion-MNIST files into {FMNIST}, or name their folder in FEDSECURE_FASHION_MNIST")
    plan = task(CLASS_NAMES["FashionMNIST"], (1, 28, 28))
    data = load_dataset(source("FashionMNIST", FMNIST, split=split), plan)
    assert data.counts().tolist() == [count // 10] * 10
    assert hashlib.sha256(data.x.tobytes() + data.y.tobytes()).hexdigest() == digest
