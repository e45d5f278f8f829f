"""Records without labels: archives, tables, pictures and folders of them, each record with a name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedsecure.data.settings import CsvSource
from fedsecure.data.unlabelled import Reading, load_unlabelled, require_there
from fedsecure.errors import DataError
from fedsecure.plan.task import ImageTask, TableTask

IMAGES = ImageTask.model_validate_json('{"kind": "image", "classes": ["a", "b"], "shape": [1, 4, 4]}')
TABLE = TableTask.model_validate_json(
    """{"kind": "table", "classes": ["a", "b"], "columns": [
    {"kind": "numeric", "name": "age", "low": 0, "high": 120, "mean": 50, "std": 10},
    {"kind": "categorical", "name": "sex", "levels": ["f", "m"]}]}"""
)


def reading(resize=False, grey=False, settings="analyst.toml", **table) -> Reading:
    source = CsvSource(kind="csv", path=Path("-"), label="", **table)
    return Reading(source, resize, grey, settings)


def picture(path, value=51, size=(4, 4), mode="L"):
    Image.new(mode, size, value).save(path)
    return path


def load(*paths, task=IMAGES, **how):
    return load_unlabelled(paths, task, reading(**how))


def test_archives_need_no_labels(tmp_path):
    pixels = np.arange(32, dtype=np.uint8).reshape(2, 4, 4)
    np.savez(tmp_path / "q.npz", x=pixels)
    found = load(tmp_path / "q.npz")
    assert found.names == (f"{tmp_path / 'q.npz'}:0", f"{tmp_path / 'q.npz'}:1")
    assert found.x.dtype == np.float32
    assert (found.x == (pixels.reshape(2, 1, 4, 4) / np.float32(255)).astype(np.float32)).all()
    np.savez(tmp_path / "f.npz", x=np.full((1, 1, 4, 4), 0.25))
    assert (load(tmp_path / "f.npz").x == 0.25).all()


def test_rows_of_an_archive(tmp_path):
    np.savez(tmp_path / "q.npz", x=np.asarray([[0.5, 1, 0]]))
    assert load(tmp_path / "q.npz", task=TABLE).x.tolist() == [[0.5, 1, 0]]


def test_rows_that_float32_does_not_hold(tmp_path):
    np.savez(tmp_path / "q.npz", x=np.asarray([[0.5, 1, 0], [1e300, 1, 0]]))
    with pytest.raises(DataError, match=r"q.npz: array 'x': record 1 holds values too large for float32"):
        load(tmp_path / "q.npz", task=TABLE)


def test_hints_name_the_keys_where_they_are_set(tmp_path):
    big = picture(tmp_path / "big.png", size=(8, 8))
    colour = picture(tmp_path / "colour.png", (1, 2, 3), mode="RGB")
    for path, hint in ((big, "resize = true in [images] of"), (colour, "grey = true in [images] of")):
        with pytest.raises(DataError) as caught:
            load(path, settings="my.toml")
        assert f"{hint} my.toml" in caught.value.hint
    table = tmp_path / "t.csv"
    for text, how, key in (
        ("Age,sex\n1,f\n", {}, "columns"),
        ("years,gender\n1,f\n", {}, "columns"),
        ("age;sex\n1;f\n", {}, 'delimiter = ";"'),
        ("age,sex\n1,x\n", {}, "missing, missing_values, levels or decimal"),
        ("age,sex\n1,f\n", {"columns": {"Age": "age"}}, "columns"),
        ("age,sex\n1,f\n", {"levels": {"sex": {"w": "female"}}}, "levels"),
        ("age,sex\n1,f\n", {"encoding": "utf-99"}, "encoding"),
        ("age,sex\n1,\xe4\n", {}, "encoding"),
    ):
        table.write_bytes(text.encode("latin-1"))
        with pytest.raises(DataError) as caught:
            load(table, task=TABLE, settings="my.toml", **how)
        assert f"{key} in [table] of my.toml" in caught.value.hint, caught.value


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({"images": np.zeros((1, 4, 4))}, "has no array 'x' .it has 'images'."),
        ({"x": np.zeros((0, 4, 4))}, "holds no records"),
        ({"x": np.zeros((1, 5, 5))}, "shape"),
        ({"x": np.full((1, 4, 4), 2.0)}, "outside"),
        ({"x": np.full((1, 4, 4), np.nan)}, "not finite"),
        ({"x": np.zeros((1, 4, 4), np.int64)}, "dtype int64"),
        ({"x": np.asarray([{}], dtype=object)}, "pickles"),
    ],
)
def test_archives_that_do_not_fit(tmp_path, arrays, fault):
    np.savez(tmp_path / "q.npz", **arrays)
    with pytest.raises(DataError, match=fault):
        load(tmp_path / "q.npz")


def test_pictures_and_folders_of_them(tmp_path):
    scans = tmp_path / "scans"
    (scans / "visit 2").mkdir(parents=True)
    (scans / ".hidden").write_text("")
    for name in ("b.png", "a.png", "visit 2/c.png"):
        picture(scans / name)
    alone = picture(tmp_path / "alone.png", 255)
    found = load(alone, scans)
    assert found.names == tuple(str(p) for p in (alone, *(scans / n for n in ("a.png", "b.png", "visit 2/c.png"))))
    assert found.x.shape == (4, 1, 4, 4)
    assert (found.x[0] == 1).all()
    assert np.allclose(found.x[1:], 0.2)


def test_a_folder_named_as_a_class_is_only_a_folder(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    picture(tmp_path / "a" / "b" / "x.png")
    assert len(load(tmp_path).names) == 1


def test_pictures_that_do_not_fit(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no pictures"):
        load(tmp_path / "empty")
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "nowhere.png")
    large, colour = (
        picture(tmp_path / "large.png", size=(8, 8)),
        picture(tmp_path / "colour.png", (1, 2, 3), mode="RGB"),
    )
    with pytest.raises(DataError, match=r"large\.png: 8 pixels high"):
        load(large)
    with pytest.raises(DataError, match=r"colour\.png: a colour picture"):
        load(colour)
    assert load(large, colour, resize=True, grey=True).x.shape == (2, 1, 4, 4)
    (tmp_path / "empty" / "notes.txt").write_text("x")
    with pytest.raises(DataError, match=r"notes\.txt: not a picture"):
        load(tmp_path / "empty")


def test_tables_without_a_label_column(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("sex,age,name\nf,60,x\n\nm,40,y\n")
    found = load(path, task=TABLE)
    assert found.names == (f"{path}:2", f"{path}:4")
    assert found.x.tolist() == [[1, 1, 0], [-1, 0, 1]]
    path.write_text("Geschlecht;age\nw;60\n")
    mapped = {"delimiter": ";", "columns": {"sex": "Geschlecht"}, "levels": {"sex": {"w": "f"}}}
    assert load(path, task=TABLE, **mapped).x.tolist() == [[1, 1, 0]]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("sex,age\nf,160\n", "line 2, column age: outside 0..120"),
        ("sex,age\nf\n", "line 2: 1 cells where the header line has 2"),
        ("sex\nf\n", "no column 'age'"),
        ("sex,age\n", "holds no records"),
        ("sex,age\n?,60\n", "line 2, column sex: not recorded"),
    ],
)
def test_tables_that_do_not_fit(tmp_path, text, fault):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(DataError, match=fault):
        load(tmp_path / "p.csv", task=TABLE)


def test_kinds_do_not_mix(tmp_path):
    with pytest.raises(DataError, match="rows of a table"):
        load(picture(tmp_path / "x.png"), task=TABLE)
    (tmp_path / "p.csv").write_text("sex,age\nf,60\n")
    with pytest.raises(DataError, match=r"p\.csv: not a picture"):
        load(tmp_path / "p.csv")
    with pytest.raises(DataError, match="no records are given"):
        load()


def test_all_paths_are_looked_at_first(tmp_path):
    require_there([tmp_path])
    with pytest.raises(DataError, match="gone: no such file"):
        require_there([tmp_path, tmp_path / "gone"])
