"""``.npz`` archives, whole and odd; and what ``save_npz`` writes."""

import hashlib
import io
import os
import pickle
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedsecure.data import load_dataset
from fedsecure.data.dataset import Dataset
from fedsecure.data.export import save_npz
from fedsecure.data.settings import NpzSource
from fedsecure.errors import DataError
from fedsecure.plan.task import ImageTask, TableTask

TASK = ImageTask(kind="image", classes=("cat", "dog"), shape=(1, 4, 5))
COLOUR = ImageTask(kind="image", classes=("cat", "dog"), shape=(3, 4, 5))
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes an archive and returns its path; good arrays unless others are given."""

    def _make(**arrays: object) -> Path:
        whole = {"x": np.zeros((3, 1, 4, 5), np.uint8), "y": np.array(["cat", "dog", "cat"]), **arrays}
        np.savez_compressed(tmp_path / "set.npz", **{k: v for k, v in whole.items() if v is not None})
        return tmp_path / "set.npz"

    return _make


def load(path: Path, task: ImageTask | TableTask = TASK, **options: object) -> Dataset:
    return load_dataset(NpzSource(kind="npz", path=path, **options), task)  # type: ignore[arg-type]


def refuse(path: Path, match: str, task: ImageTask | TableTask = TASK, **options: object) -> str:
    with pytest.raises(DataError, match=match) as caught:
        load(path, task, **options)
    assert str(path.name) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=True)
    return stream.getvalue()


def archive(path: Path, members: dict[str, bytes], **options: int) -> Path:
    with zipfile.ZipFile(path, "w", **options) as out:  # type: ignore[arg-type]
        for name, content in members.items():
            out.writestr(name, content)
    return path


GOOD_Y = npy(np.array(["cat"]))


def test_bytes_are_divided_by_255(make: Make) -> None:
    x = np.arange(60, dtype=np.uint8).reshape(3, 1, 4, 5)
    data = load(make(x=x))
    np.testing.assert_array_equal(data.x, x.astype(np.float32) / np.float32(255))
    assert data.y.tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_floats_of_any_byte_order_and_layout(make: Make, dtype: str, order: str) -> None:
    x = np.asarray(np.linspace(0, 1, 60).reshape(3, 1, 4, 5), dtype=dtype, order=order)  # type: ignore[call-overload]
    np.testing.assert_array_equal(load(make(x=x)).x, x.astype(np.float32))


def test_grey_images_without_a_channel_axis(make: Make) -> None:
    assert load(make(x=np.zeros((3, 4, 5), np.uint8))).x.shape == (3, 1, 4, 5)
    refuse(make(x=np.zeros((3, 4, 5), np.uint8)), r"shape \[1, 4, 5\] where the plan asks for \[3, 4, 5\]", COLOUR)


@pytest.mark.parametrize(
    "y",
    [
        np.array([1, 0, 1]), np.array([1, 0, 1], np.uint8), np.array([1, 0, 1], ">i8"), np.array([1.0, 0.0, 1.0]),
        np.array(["1", "0", "1"]), np.array(["1.0", "0.0", " 1"]), np.array([b"1", b"0", b"1"]),
    ],
)  # fmt: skip
def test_labels_compare_as_text(make: Make, y: np.ndarray) -> None:
    assert load(make(y=y), classes={"1": "cat", "0": "dog"}).y.tolist() == [0, 1, 0]


def test_true_and_false(make: Make) -> None:
    y = np.array([True, False, True])
    assert load(make(y=y), classes={"True": "dog", "False": "cat"}).y.tolist() == [1, 0, 1]


def test_numbers_never_stand_for_positions(make: Make) -> None:
    refuse(make(y=np.array([0, 1, 0])), "array 'y' has labels '0', '1' not among the plan's classes 'cat', 'dog'")


def test_ignored_labels_leave(make: Make) -> None:
    assert load(make(), ignore=("dog",)).y.tolist() == [0, 0]
    refuse(make(), "holds no records", ignore=("dog", "cat"))


def test_other_names_of_arrays(make: Make) -> None:
    path = make(x=None, y=None, bilder=np.zeros((1, 1, 4, 5), np.uint8), art=np.array(["dog"]))
    assert load(path, x="bilder", y="art").y.tolist() == [1]
    refuse(path, r"has no array 'x' \(it has 'bilder', 'art'\)")


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"x": np.array([[1, "a"]], dtype=object)}, "array 'x' holds Python objects, which are pickles"),
        ({"y": np.array(["cat", None, 3], dtype=object)}, "array 'y' holds Python objects, which are pickles"),
        ({"x": np.zeros((3, 4, 5, 1), np.uint8)}, "array 'x' has the channels last"),
        ({"x": np.zeros((3, 1, 5, 4), np.uint8)}, r"shape \[1, 5, 4\] where the plan asks for \[1, 4, 5\]"),
        ({"x": np.zeros((3, 20), np.uint8)}, r"shape \[20\] where"),
        ({"x": np.zeros(3, np.uint8)}, r"shape \[3\]: no records"),
        ({"x": np.uint8(0)}, r"shape \[\]: no records"),
        ({"x": np.zeros((3, 1, 4, 5), np.uint16)}, "dtype uint16 .allowed: float16, float32, float64, uint8"),
        ({"x": np.zeros((3, 1, 4, 5), np.int64)}, "dtype int64"),
        ({"x": np.zeros((3, 1, 4, 5), np.complex128)}, "dtype complex128"),
        ({"x": np.zeros((3, 1, 4, 5), bool)}, "dtype bool"),
        ({"x": np.full((3, 1, 4, 5), 255.0)}, r"record 0 has pixels outside \[0, 1\]"),
        ({"x": np.full((3, 1, 4, 5), -1e-9)}, r"record 0 has pixels outside \[0, 1\]"),
        ({"y": np.array(["cat", "dog"])}, r"array 'y' has shape \[2\] where 3 records need \[3\]"),
        ({"y": np.eye(3)}, r"array 'y' has shape \[3, 3\]"),
        ({"y": np.array([0.5, 1, 0])}, "array 'y': record 0: its label is not a whole number"),
        ({"y": np.array([1, 0, np.nan])}, "array 'y': record 2: its label is not a whole number"),
        ({"y": np.array([1, 0, np.inf])}, "array 'y': record 2: its label is not a whole number"),
        ({"y": np.array([1j, 0, 0])}, "array 'y' has dtype complex128"),
        ({"y": np.array(["2020-01-01"] * 3, "datetime64[D]")}, "array 'y' has dtype datetime64"),
        ({"y": np.array(["x" * 2000] * 3)}, "array 'y' has dtype"),
        ({"y": np.array([b"caf\xe9"] * 3)}, "labels are bytes that are not UTF-8"),
        ({"y": np.zeros(3, [("a", "i4")])}, "array 'y' is no plain array"),
        ({"x": np.zeros((0, 1, 4, 5), np.uint8), "y": np.array([], "<U3")}, "holds no records"),
        ({"y": None}, "has no array 'y'"),
    ],
)
def test_arrays_that_are_refused(make: Make, arrays: dict[str, object], match: str) -> None:
    refuse(make(**arrays), match)


def test_non_finite_pixels_are_named_by_record(make: Make) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        x = np.zeros((3, 1, 4, 5), np.float32)
        x[2, 0, 1, 1] = bad
        refuse(make(x=x), "array 'x': record 2 holds values that are not finite")


def test_channels_last_colour(make: Make) -> None:
    refuse(make(x=np.zeros((3, 4, 5, 3), np.uint8)), "channels last", COLOUR)


def test_a_pickle_inside_is_never_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    objects = np.empty((1, 1, 4, 5), dtype=object)
    objects[...] = Trap()
    refuse(archive(tmp_path / "a.npz", {"x.npy": npy(objects), "y.npy": GOOD_Y}), "which are pickles")
    refuse(archive(tmp_path / "b.npz", {"x.npy": pickle.dumps(Trap()), "y.npy": GOOD_Y}), "no readable .npy header")
    (tmp_path / "c.npz").write_bytes(pickle.dumps(Trap()))
    refuse(tmp_path / "c.npz", "not a whole .npz archive")
    assert not (tmp_path / "sprung").exists()


def test_a_zip_bomb_is_refused_by_what_it_declares(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**12, 1, 4, 5)})
    declared = archive(tmp_path / "a.npz", {"x.npy": header.getvalue(), "y.npy": GOOD_Y})
    refuse(declared, "array 'x' declares 20000000000000 bytes but holds 0")
    stuffed = npy(np.zeros((1, 1, 4, 5), np.uint8)) + b"\0" * 10_000_000
    packed = archive(tmp_path / "b.npz", {"x.npy": stuffed, "y.npy": GOOD_Y}, compression=zipfile.ZIP_DEFLATED)
    refuse(packed, "array 'x' declares 20 bytes but holds 10000020")


def test_an_honest_giant_is_refused_before_it_is_read(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make()
    monkeypatch.setattr("fedsecure.data.files.MAX_DATASET_BYTES", 100)
    refuse(path, r"3 records of shape \[1, 4, 5\] need")


@pytest.mark.parametrize(
    "shape", ["(-1, 1, 4, 5)", "(True, 1, 4, 5)", "(1e3, 1, 4, 5)", "(9999999999999999999999999, 1, 4, 5)", "((1,), 1)"]
)
def test_shapes_that_are_no_shapes(tmp_path: Path, shape: str) -> None:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    refuse(archive(tmp_path / "a.npz", {"x.npy": head, "y.npy": GOOD_Y}), "array 'x'")


@pytest.mark.parametrize(
    "head",
    [
        b"", b"\x93NUMPY", b"\x93NUMPY\x03\x00\x04\x00\x00\x00{}  ", b"\x93NUMPY\x09\x00",
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"\x93NUMPY\x01\x00\x0c\x00__import__()", b"\x93NUMPY\x02\x00\x00\x00\x00\x40" + b"(" * 20_000,
    ],
)  # fmt: skip
def test_headers_that_are_no_headers(tmp_path: Path, head: bytes) -> None:
    refuse(archive(tmp_path / "a.npz", {"x.npy": head, "y.npy": GOOD_Y}), "array 'x'")


def test_damaged_archives(make: Make, tmp_path: Path) -> None:
    whole = make(x=np.random.default_rng(0).integers(0, 255, (3, 1, 4, 5), dtype=np.uint8)).read_bytes()
    path = tmp_path / "cut.npz"
    for cut in range(1, len(whole) - 1, 37):
        path.write_bytes(whole[:cut])
        refuse(path, "not a whole .npz archive")


def test_a_flipped_bit_does_not_pass(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 255, (50_000, 1, 4, 5), dtype=np.uint8)
    path = archive(tmp_path / "a.npz", {"x.npy": npy(x), "y.npy": npy(np.array(["cat"] * 50_000))})
    whole = bytearray(path.read_bytes())
    place = whole.index(x.tobytes())
    whole[place + 999_999] ^= 1
    path.write_bytes(whole)
    refuse(path, "array 'x' is damaged")


def test_the_same_array_twice(tmp_path: Path) -> None:
    x = npy(np.zeros((1, 1, 4, 5), np.uint8))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as out:
        out.writestr("x.npy", x)
        out.writestr("y.npy", GOOD_Y)
        with pytest.warns(UserWarning, match="Duplicate"):
            out.writestr("x.npy", x)
    refuse(tmp_path / "a.npz", "holds array 'x' twice")


def test_an_unknown_packing(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a.npz",
        {"x.npy": npy(np.zeros((1, 1, 4, 5), np.uint8)), "y.npy": GOOD_Y},
        compression=zipfile.ZIP_LZMA,
    )
    refuse(path, "encrypted or packed in an unknown way")


def test_files_that_are_no_archive(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    refuse(tmp_path / "a.npy", "not a whole .npz archive")
    (tmp_path / "b.npz").touch()
    refuse(tmp_path / "b.npz", r"is empty \(0 bytes\)")
    refuse(tmp_path, "is a folder where a file is due")
    refuse(tmp_path / "nowhere.npz", "no such file")


def test_a_wrong_label_array_is_not_printed(make: Make) -> None:
    x = np.zeros((50, 1, 4, 5), np.uint8)
    message = refuse(make(x=x, y=np.array([f"Müller {i}" for i in range(50)])), "50 different ones")
    assert "Müller" not in message


TABLE = TableTask.model_validate_json(
    """{"kind": "table", "classes": ["no", "yes"], "columns": [
    {"kind": "numeric", "name": "age", "low": 0, "high": 120, "mean": 50, "std": 20, "missing": "indicator"},
    {"kind": "categorical", "name": "sex", "levels": ["f", "m"]}]}"""
)


def test_encoded_rows(make: Make) -> None:
    rows = np.array([[-2.5, 0, 1, 0], [0, 1, 0, 1]], np.float64)
    data = load(make(x=rows, y=np.array(["yes", "no"])), TABLE)
    np.testing.assert_array_equal(data.x, rows.astype(np.float32))
    refuse(make(x=rows[:, :3], y=np.array(["yes", "no"])), r"shape \[3\] where the plan asks for \[4\]", TABLE)
    refuse(make(x=rows.astype(np.uint8), y=np.array(["yes", "no"])), "dtype uint8", TABLE)
    refuse(make(x=rows * np.nan, y=np.array(["yes", "no"])), "not finite", TABLE)


def test_a_float64_beyond_float32_is_named(make: Make) -> None:
    rows = np.array([[0.0, 0, 1, 0], [-1e300, 0, 1, 0]])
    refuse(make(x=rows, y=np.array(["yes", "yes"])), "record 1 holds values too large for float32", TABLE)
    biggest = np.full((1, 4), np.finfo(np.float32).max, np.float64)
    assert np.isfinite(load(make(x=biggest, y=np.array(["yes"])), TABLE).x).all()


@pytest.mark.parametrize("classes", [("cat", "dog"), ("T-shirt/top", "Ärmel 北京")])
def test_what_is_saved_is_read_back_bit_for_bit(tmp_path: Path, classes: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    task = ImageTask(kind="image", classes=classes, shape=(3, 4, 5))
    data = Dataset(rng.random((7, 3, 4, 5), dtype=np.float32), rng.integers(0, 2, 7), classes)
    path = tmp_path / "node 1" / "Datei ü.npz"
    path.parent.mkdir()
    save_npz(data, path)
    again = load_dataset(NpzSource(kind="npz", path=path), task)
    assert again.x.tobytes() == data.x.tobytes()
    assert again.y.tobytes() == data.y.tobytes()
    assert again.fingerprint() == data.fingerprint()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    first = hashlib.sha256(path.read_bytes()).hexdigest()
    save_npz(data, path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == first


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    data = Dataset(np.zeros((1, 1, 4, 5), np.float32), np.zeros(1, np.int64), ("cat", "dog"))
    with pytest.raises(DataError, match="a.npz: cannot be written: No such file"):
        save_npz(data, tmp_path / "nowhere" / "a.npz")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="folder: cannot be written"):
        save_npz(data, tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("shape", [(0, 1, 4, 5), (0, 4, 5)])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_an_archive_without_records_says_so(make: Make, shape: tuple[int, ...], kind: type) -> None:
    for labels in (np.zeros(0, np.int64), np.zeros(0, "U3"), np.zeros(0, np.float64)):
        refuse(make(x=np.zeros(shape, kind), y=labels), "array 'x' holds no records")
    table = TableTask.model_validate_json(
        '{"kind": "table", "classes": ["a", "b"], "columns": [{"kind": "numeric", "name": "n", "low": 0, "high": 1,'
        ' "mean": 0, "std": 1}]}'
    )
    refuse(make(x=np.zeros((0, 1), np.float32), y=np.zeros(0, np.int64)), "holds no records", table)
