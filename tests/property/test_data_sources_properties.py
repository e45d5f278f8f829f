"""Sources against any content: what was written is read back, and damage is a ``DataError`` or nothing."""

import csv
import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedsecure.data import load_dataset
from fedsecure.data.classes import canonical
from fedsecure.data.dataset import Dataset
from fedsecure.data.export import save_npz
from fedsecure.data.settings import AnySource, CsvSource, FolderSource, NpzSource
from fedsecure.errors import DataError
from fedsecure.plan.task import ImageTask, TableTask, Task

IMAGES = ImageTask(kind="image", classes=("a", "b"), shape=(1, 4, 4))
TABLE = TableTask.model_validate_json(
    """{"kind": "table", "classes": ["no", "yes"], "columns": [
    {"kind": "numeric", "name": "age", "low": -1e6, "high": 1e6, "mean": 3, "std": 7, "missing": "indicator"},
    {"kind": "categorical", "name": "sex", "levels": ["f", "m"], "missing": "zeros"}]}"""
)
names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=30).filter(
    lambda s: s == s.strip()
)


def attempt(source: AnySource, task: Task) -> None:
    """Loading ends with a data set that fits the plan, or with a ``DataError`` of one line."""
    refused = ""
    try:
        data = load_dataset(source, task)
    except DataError as error:
        refused = str(error)
    assert "\n" not in refused
    assert refused or data.x.shape[1:] == task.feature_shape


@st.composite
def damage(draw: st.DrawFn, whole: bytes) -> bytes:
    """``whole`` with bytes changed, removed or put in."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "cut", "insert", "drop"]))
        if kind == "flip" and content:
            content[place] ^= draw(st.integers(1, 255))
        elif kind == "cut":
            del content[place:]
        elif kind == "insert":
            content[place:place] = draw(st.binary(min_size=1, max_size=8))
        else:
            del content[place : place + draw(st.integers(1, 8))]
    return bytes(content)


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(-1e6, 1e6)),
            st.sampled_from(["f", "m", None]),
            st.sampled_from(["no", "yes"]),
        ),
        min_size=1,
        max_size=20,
    ),
    notes=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=20, max_size=20),
    style=st.sampled_from(
        [
            (",", ".", "\n", "utf-8"),
            (";", ",", "\r\n", "utf-16"),
            ("\t", ".", "\r\n", "utf-8-sig"),
            ("|", ",", "\n", "utf-8"),
        ]
    ),
)
def test_tables_come_back(
    rows: list[tuple[float | None, str | None, str]], notes: list[str], style: tuple[str, str, str, str]
) -> None:
    delimiter, decimal, end, encoding = style
    text = io.StringIO()
    out = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    out.writerow(["note", "sick", "age", "sex"])
    for note, (age, sex, label) in zip(notes, rows, strict=False):
        out.writerow([note, label, "" if age is None else repr(age).replace(".", decimal), sex or "NA"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(text.getvalue().encode(encoding))
        source = CsvSource(
            kind="csv",
            path=path,
            label="sick",
            delimiter=delimiter,
            decimal=decimal,
            encoding=encoding,  # type: ignore[arg-type]
        )
        data = load_dataset(source, TABLE)
    due = [[0.0 if a is None else (a - 3) / 7, float(a is None), float(s == "f"), float(s == "m")] for a, s, _ in rows]
    assert data.x.tobytes() == np.asarray(due, dtype=np.float32).tobytes()
    assert data.y.tolist() == [int(label == "yes") for *_, label in rows]


@settings(max_examples=60, deadline=None)
@given(
    classes=st.lists(names, min_size=2, max_size=5, unique=True),
    seed=st.integers(0, 2**32),
    count=st.integers(1, 9),
)
def test_archives_come_back_bit_for_bit(classes: list[str], seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    data = Dataset(rng.random((count, 1, 4, 4), dtype=np.float32), rng.integers(0, len(classes), count), tuple(classes))
    task = ImageTask(kind="image", classes=tuple(classes), shape=(1, 4, 4))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.npz"
        save_npz(data, path)
        if len({canonical(name) for name in classes}) < len(classes):
            with pytest.raises(DataError, match="two spellings"):
                load_dataset(NpzSource(kind="npz", path=path), task)
            return
        again = load_dataset(NpzSource(kind="npz", path=path), task)
    assert again.x.tobytes() == data.x.tobytes()
    assert again.y.tobytes() == data.y.tobytes()


def _npz() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4), y=np.array(["a", "b"]))
    return stream.getvalue()


@settings(max_examples=300, deadline=None)
@given(content=damage(_npz()))
def test_damaged_archives(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.npz"
        path.write_bytes(content)
        attempt(NpzSource(kind="npz", path=path), IMAGES)


def _picture(suffix: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.arange(0, 256, 16, dtype=np.uint8).reshape(4, 4)).save(stream, suffix)
    return stream.getvalue()


@settings(max_examples=400, deadline=None)
@given(
    content=st.sampled_from(["PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM"]).flatmap(lambda s: damage(_picture(s)))
)
def test_damaged_pictures(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a").mkdir()
        (Path(folder) / "a" / "x").write_bytes(content)
        for resize in (False, True):
            attempt(FolderSource(kind="folder", path=Path(folder), resize=resize), IMAGES)


@settings(max_examples=300, deadline=None)
@given(
    content=st.one_of(
        damage(b'age,sex,sick\n70,f,yes\n"1",m,no\n,NA,"y""es"\n'),
        st.binary(max_size=200),
        st.text().map(str.encode),
    ),
    encoding=st.sampled_from(["utf-8-sig", "utf-16", "utf-7", "cp1252", "shift_jis", "utf-32"]),
)
def test_damaged_tables(content: bytes, encoding: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(content)
        attempt(CsvSource(kind="csv", path=path, label="sick", encoding=encoding), TABLE)
