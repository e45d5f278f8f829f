"""What a ledger knows records by: the record itself, whatever its path, its place, its label and any plan's task."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedsecure.data.fingerprint import record_digests
from fedsecure.data.settings import CsvSource, DigitsSource, FolderSource, NpzSource, TorchvisionSource
from fedsecure.errors import DataError


def picture(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8), shade, np.uint8)).save(path)


def of_folder(path: Path, **more: object) -> tuple[bytes, ...]:
    return record_digests(FolderSource.model_validate({"kind": "folder", "path": path, **more}))


def of_npz(path: Path, x: np.ndarray, y: np.ndarray | None = None) -> tuple[bytes, ...]:
    np.savez(path, x=x, y=np.zeros(len(x), np.int64) if y is None else y)
    return record_digests(NpzSource(kind="npz", path=path))


def of_csv(path: Path, text: str, **more: object) -> tuple[bytes, ...]:
    path.write_text(text)
    return record_digests(CsvSource.model_validate({"kind": "csv", "path": path, "label": "sick", **more}))


def test_pictures_are_their_bytes_under_whatever_name_and_class(tmp_path: Path) -> None:
    for name, shade in (("normal/1.png", 10), ("normal/visit/2.png", 20), ("ill/3.png", 30)):
        picture(tmp_path / "old" / name, shade)
    (tmp_path / "old" / "README.txt").write_text("outside of all classes")
    found = of_folder(tmp_path / "old")
    assert len(set(found)) == len(found) == 3
    assert {len(digest) for digest in found} == {32}
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    (tmp_path / "new" / "ill" / "3.png").rename(tmp_path / "new" / "normal" / "another.png")
    assert sorted(of_folder(tmp_path / "new", resize=True, ignore=("ill",))) == sorted(found)
    picture(tmp_path / "new" / "ill" / "4.png", 40)
    assert set(found) < set(of_folder(tmp_path / "new"))


def test_rows_of_an_array_are_their_values_as_float32(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 1, 8, 8), np.uint8)
    found = of_npz(tmp_path / "a.npz", pixels)
    scaled = pixels.astype(np.float32) / np.float32(255)
    assert len(set(found)) == 7
    for same in (scaled, scaled.astype(np.float64), scaled.astype(">f4"), scaled[:, 0], np.asfortranarray(scaled)):
        assert of_npz(tmp_path / "b.npz", same) == found
    assert of_npz(tmp_path / "b.npz", pixels[::-1], np.arange(7)) == found[::-1]
    assert of_npz(tmp_path / "b.npz", np.zeros((1, 3))) == of_npz(tmp_path / "b.npz", -np.zeros((1, 3)))
    np.savez_compressed(tmp_path / "c.npz", x=pixels, y=np.zeros(7))
    assert record_digests(NpzSource(kind="npz", path=tmp_path / "c.npz")) == found


def test_many_rows_are_taken_piece_by_piece(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((3000, 200), np.float32)  # more than a block of 1 MiB
    found = of_npz(tmp_path / "a.npz", rows)
    assert len(set(found)) == 3000
    assert of_npz(tmp_path / "b.npz", rows[1234:1235]) == (found[1234],)


def test_named_sets_are_the_values_of_their_images(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    images = (load_digits().images.astype(np.float32) / np.float32(16))[:, None]
    assert record_digests(DigitsSource(kind="digits", ignore=("3",))) == of_npz(tmp_path / "a.npz", images)
    for name, header, data in (
        ("train-images-idx3-ubyte", b"\0\0\x08\x03\0\0\0\x02\0\0\0\x1c\0\0\0\x1c", bytes(range(256)) * 6 + bytes(32)),
        ("train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x02", b"\x09\x00"),
    ):
        (tmp_path / name).write_bytes(header + data)
    pixels = np.frombuffer(bytes(range(256)) * 6 + bytes(32), np.uint8).reshape(2, 1, 28, 28)
    source = TorchvisionSource(kind="torchvision", name="FashionMNIST", path=tmp_path)
    assert record_digests(source) == of_npz(tmp_path / "b.npz", pixels)


def test_rows_of_a_table_are_their_cells_by_column(tmp_path: Path) -> None:
    found = of_csv(tmp_path / "a.csv", "age,sick,note\n61,yes,\n48,no,x\n")
    assert len(set(found)) == 2
    assert of_csv(tmp_path / "b.csv", "note;age;sick\nx;48; no\n;61;yes\n", delimiter=";") == found[::-1]
    assert of_csv(tmp_path / "c.csv", "age,sick,note,empty\n61,yes,,\n48,no,x,\n", ignore=("no",)) == found
    assert set(of_csv(tmp_path / "d.csv", "sick,age,note\n61,yes,\n48,no,x\n")).isdisjoint(found)  # other columns


def test_what_holds_no_records_or_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no records"):
        of_csv(tmp_path / "a.csv", "age,sick\n")
    with pytest.raises(DataError, match=r"a\.csv: line 2: 1 cells where the header line has 2"):
        of_csv(tmp_path / "a.csv", "age,sick\n61\n")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="holds no records"):
        of_folder(tmp_path / "folder")
    with pytest.raises(DataError, match="no such file"):
        of_folder(tmp_path / "missing")
    with pytest.raises(DataError, match="int64 and shape"):
        of_npz(tmp_path / "a.npz", np.zeros((2, 3), np.int64))
    (tmp_path / "folder" / "ill").mkdir()
    (tmp_path / "folder" / "ill" / "0.png").touch()
    with pytest.raises(DataError, match=r"0\.png: is empty"):
        of_folder(tmp_path / "folder")
