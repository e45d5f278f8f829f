"""Folders of real picture files, whole and odd."""

import os
import struct
import subprocess
import sys
import unicodedata
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedsecure.data import image, load_dataset
from fedsecure.data.dataset import Dataset
from fedsecure.data.settings import FolderSource
from fedsecure.errors import DataError
from fedsecure.plan.task import ImageTask, TableTask

Load = Callable[..., Dataset]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with one good grey picture in each of two classes."""
    for name in ("cat", "dog"):
        (tmp_path / "set" / name).mkdir(parents=True)
        grey(6).save(tmp_path / "set" / name / "good.png")
    return tmp_path / "set"


@pytest.fixture
def load(root: Path) -> Load:
    def _load(channels: int = 1, **options: object) -> Dataset:
        task = ImageTask(kind="image", classes=("dog", "cat"), shape=(channels, 6, 6))
        return load_dataset(FolderSource(kind="folder", path=root, **options), task)  # type: ignore[arg-type]

    return _load


def grey(side: int = 6, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side), dtype=np.uint8))


def colour(side: int = 6, channels: int = 3) -> Image.Image:
    return Image.fromarray(np.random.default_rng(1).integers(0, 255, (side, side, channels), dtype=np.uint8))


def refuse(load: Load, match: str, **options: object) -> str:
    with pytest.raises(DataError, match=match) as caught:
        load(**options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pixels_and_labels_by_name(root: Path, load: Load) -> None:
    grey(seed=5).save(root / "dog" / "a.png")
    data = load()
    assert data.x.shape == (3, 1, 6, 6)
    assert data.y.tolist() == [1, 0, 0]  # cat/good, dog/a, dog/good: classes by name, not by position
    np.testing.assert_array_equal(data.x[1, 0], np.asarray(grey(seed=5), dtype=np.float32) / np.float32(255))


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "gif", "webp", "pgm", "PNG"])
def test_lossless_formats_give_the_same_pixels(root: Path, load: Load, suffix: str) -> None:
    (root / "cat" / "good.png").unlink()
    options = {"lossless": True} if suffix == "webp" else {}
    grey(seed=3).save(root / "cat" / f"x.{suffix}", **options)
    np.testing.assert_array_equal(load().x[0, 0], np.asarray(grey(seed=3), dtype=np.float32) / np.float32(255))


def test_jpeg(root: Path, load: Load) -> None:
    Image.new("L", (6, 6), 128).save(root / "cat" / "flat.jpg", quality=95)
    assert abs(float(load().x[0].mean()) - 128 / 255) < 0.02


def test_sixteen_bit_grey_keeps_its_depth(root: Path, load: Load) -> None:
    deep = (np.arange(36, dtype=np.uint16) * 1800).reshape(6, 6)
    Image.fromarray(deep).save(root / "cat" / "a.png")
    Image.fromarray(deep).save(root / "cat" / "b.tiff")
    data = load()
    for i in (0, 1):
        np.testing.assert_array_equal(data.x[i, 0], deep.astype(np.float32) / np.float32(65535))


def test_bilevel(root: Path, load: Load) -> None:
    Image.fromarray(np.eye(6, dtype=bool)).save(root / "cat" / "a.png")
    np.testing.assert_array_equal(load().x[0, 0], np.eye(6, dtype=np.float32))


def test_palette_is_looked_up(root: Path, load: Load) -> None:
    picture = Image.fromarray(np.tile(np.arange(6, dtype=np.uint8), (6, 1)))
    picture = picture.convert("P")
    picture.putpalette([c for i in range(6) for c in (40 * i, 40 * i, 40 * i)])
    picture.save(root / "cat" / "a.png")
    np.testing.assert_array_equal(load().x[0, 0, 0], np.arange(6, dtype=np.float32) * 40 / np.float32(255))


def test_grey_is_repeated_over_three_channels(load: Load) -> None:
    data = load(channels=3)
    assert data.x.shape == (2, 3, 6, 6)
    np.testing.assert_array_equal(data.x[:, 0], data.x[:, 2])


def test_colour_where_the_plan_has_one_channel(root: Path, load: Load) -> None:
    colour().save(root / "cat" / "a.png")
    assert "cat/a.png" in refuse(load, "colour picture where the plan has one channel")
    luma = load(grey=True).x[0, 0]
    expected = np.asarray(colour(), dtype=np.float64) / 255 @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(luma, expected, atol=1e-6)


def test_colour_with_equal_channels_is_grey(root: Path, load: Load) -> None:
    grey(seed=9).convert("RGB").save(root / "cat" / "a.png")
    np.testing.assert_array_equal(load().x[0, 0], np.asarray(grey(seed=9), dtype=np.float32) / np.float32(255))


def test_alpha_is_dropped_only_when_opaque(root: Path, load: Load) -> None:
    colour().convert("RGBA").save(root / "cat" / "a.png")
    assert load(channels=3).x.shape == (3, 3, 6, 6)
    colour(channels=4).save(root / "cat" / "b.png")
    refuse(load, r"cat/b\.png: has transparent pixels", channels=3)
    assert load(channels=4).x[1, 3].max() < 1


def test_transparent_grey_and_palette(root: Path, load: Load) -> None:
    grey().save(root / "cat" / "a.png", transparency=int(np.asarray(grey())[0, 0]))
    refuse(load, r"cat/a\.png: has transparent pixels")


def test_the_camera_orientation_is_applied(root: Path, load: Load) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = np.asarray(grey(seed=4))
    Image.fromarray(pixels).save(root / "cat" / "a.png", exif=exif)
    np.testing.assert_array_equal(load().x[0, 0], np.rot90(pixels, -1).astype(np.float32) / np.float32(255))


def test_a_turned_picture_is_measured_after_turning(root: Path, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    for old in root.glob("*/good.png"):
        old.unlink()
    Image.fromarray(np.zeros((4, 9), dtype=np.uint8)).save(root / "cat" / "a.tif", exif=exif)
    task = ImageTask(kind="image", classes=("dog", "cat"), shape=(1, 9, 4))
    assert load_dataset(FolderSource(kind="folder", path=root), task).x.shape == (1, 1, 9, 4)


def test_another_size_is_refused_or_resized_on_request(root: Path, load: Load) -> None:
    Image.new("L", (12, 24), 51).save(root / "cat" / "a.png")
    refuse(load, r"cat/a\.png: 24 pixels high and 12 wide where the plan asks for 6 and 6")
    np.testing.assert_allclose(load(resize=True).x[0], 0.2, atol=1e-6)


def test_resizing_sixteen_bit_and_colour(root: Path, load: Load) -> None:
    Image.fromarray(np.full((9, 9), 6553, np.uint16)).save(root / "cat" / "a.png")
    colour(13).save(root / "cat" / "b.png")
    data = load(channels=3, resize=True)
    np.testing.assert_allclose(data.x[0], 6553 / 65535, atol=1e-6)
    assert 0 <= data.x.min() <= data.x.max() <= 1


@pytest.mark.parametrize("suffix", ["gif", "png", "tiff", "webp"])
def test_several_pictures_in_one_file(root: Path, load: Load, suffix: str) -> None:
    grey().save(root / "cat" / f"a.{suffix}", save_all=True, append_images=[grey(seed=1), grey(seed=2)])
    refuse(load, rf"cat/a\.{suffix}: holds 3 pictures")


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "LAB", "F", "I"])
def test_modes_whose_range_is_unknown(root: Path, load: Load, mode: str) -> None:
    Image.new(mode, (6, 6)).save(root / "cat" / "a.tiff")
    refuse(load, rf"cat/a\.tiff: pixels of mode {mode}", channels=3)


def test_an_empty_file(root: Path, load: Load) -> None:
    (root / "cat" / "a.png").touch()
    refuse(load, r"cat/a\.png: is empty")


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "bmp", "gif", "webp"])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.8])
def test_a_truncated_file(root: Path, load: Load, suffix: str, part: float) -> None:
    path = root / "cat" / f"a.{suffix}"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 6), dtype=np.uint8)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    if suffix == "gif" and part > 0.7:  # GIF has no length: a decoder may be content
        return
    refuse(load, rf"cat/a\.{suffix}: (damaged|not a picture|\d+ pixels)")


@pytest.mark.parametrize(
    "content", [b"patient notes", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"<svg/>", b"\x89PNG\r\n\x1a\n" + b"x" * 50]
)
def test_other_files_in_a_class_folder(root: Path, load: Load, content: bytes) -> None:
    (root / "cat" / "a.png").write_bytes(content)
    refuse(load, r"cat/a\.png: (not a picture|damaged)")


def test_no_format_that_runs_a_program() -> None:
    assert not {"EPS", "PDF", "WMF", "FITS", "HDF5"} & set(image.FORMATS)


def test_a_decompression_bomb_is_not_decoded(root: Path, load: Load) -> None:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    (root / "cat" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    refuse(load, r"cat/a\.png: more than 64000000 pixels", resize=True)
    refuse(load, r"cat/a\.png: more than 64000000 pixels")


def test_a_file_that_is_too_long(root: Path, load: Load) -> None:
    with (root / "cat" / "a.png").open("wb") as sparse:
        sparse.truncate(2**30)
    refuse(load, r"cat/a\.png: larger than")


def test_what_file_managers_leave_behind_is_passed_over(root: Path, load: Load) -> None:
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._good.png"):
        (root / "cat" / name).write_bytes(b"x")
        (root / name).write_bytes(b"x")
    (root / ".git").mkdir()
    (root / "__MACOSX").mkdir()
    (root / "README.txt").write_text("about these records")
    assert len(load()) == 2


def test_a_picture_outside_a_class_folder(root: Path, load: Load) -> None:
    grey().save(root / "stray.PNG")
    refuse(load, r"stray\.PNG: a picture outside a class folder")


def test_nested_folders_belong_to_their_class(root: Path, load: Load) -> None:
    (root / "cat" / "patient 7" / "visit 1").mkdir(parents=True)
    grey(seed=1).save(root / "cat" / "patient 7" / "visit 1" / "a.png")
    assert load().y.tolist() == [1, 1, 0]


def test_a_class_folder_inside_another(root: Path, load: Load) -> None:
    (root / "cat" / "dog").mkdir()
    refuse(load, "cat/dog: a folder named as a class, inside another")


def test_folders_nested_too_deep(root: Path, load: Load) -> None:
    (root / "cat" / "/".join("x" * 20)).mkdir(parents=True)
    refuse(load, "nested more than 16 deep")


def test_a_link_out_of_the_folder(root: Path, load: Load, tmp_path: Path) -> None:
    grey().save(tmp_path / "secret.png")
    (root / "cat" / "a.png").symlink_to(tmp_path / "secret.png")
    refuse(load, r"cat/a\.png: a link that leads out of the folder")
    (root / "cat" / "a.png").unlink()
    (root / "cat" / "b").symlink_to(tmp_path, target_is_directory=True)
    refuse(load, "cat/b: a link that leads out of the folder")


def test_links_inside_the_folder(root: Path, load: Load) -> None:
    (root / "cat" / "again.png").symlink_to(root / "cat" / "good.png")
    assert len(load()) == 3
    (root / "cat" / "loop").symlink_to(root / "cat", target_is_directory=True)
    refuse(load, "cat/loop: a link to something else than a file")


def test_dead_and_circular_links(root: Path, load: Load) -> None:
    link = root / "cat" / "a.png"
    link.symlink_to(root / "nowhere.png")
    refuse(load, r"cat/a\.png: no such file")
    link.unlink()
    link.symlink_to(link)
    refuse(load, r"cat/a\.png: (a link that leads to itself|cannot be read)")


def test_a_linked_root_is_the_institutions_choice(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root, target_is_directory=True)
    task = ImageTask(kind="image", classes=("dog", "cat"), shape=(1, 6, 6))
    assert len(load_dataset(FolderSource(kind="folder", path=tmp_path / "link"), task)) == 2


def test_a_pipe_does_not_hang(root: Path, load: Load) -> None:
    os.mkfifo(root / "cat" / "a.png")
    refuse(load, r"cat/a\.png: neither a file nor a folder")


def test_class_folders_map_by_name(root: Path, load: Load) -> None:
    (root / "cat").rename(root / "Katzen")
    refuse(load, "folders 'Katzen' not among the plan's classes 'dog', 'cat'")
    assert load(classes={"Katzen": "cat"}).y.tolist() == [1, 0]
    assert load(ignore=("Katzen",)).y.tolist() == [0]


def test_an_ignored_folder_is_not_looked_into(root: Path, load: Load) -> None:
    (root / "rest").mkdir()
    (root / "rest" / "broken.png").write_bytes(b"x")
    assert len(load(ignore=("rest",))) == 2


def test_a_class_that_is_not_held_is_no_fault(root: Path, load: Load) -> None:
    (root / "dog" / "good.png").unlink()
    assert load().counts().tolist() == [0, 1]


def test_empty_folders(root: Path, load: Load, tmp_path: Path) -> None:
    for old in root.glob("*/good.png"):
        old.unlink()
    refuse(load, "holds no records")
    for name in ("cat", "dog"):
        (root / name).rmdir()
    refuse(load, "has no class folders")


def test_everything_ignored(load: Load) -> None:
    refuse(load, "holds no records", ignore=("cat", "dog"))


def test_paths_that_are_no_folder(tmp_path: Path) -> None:
    task = ImageTask(kind="image", classes=("dog", "cat"), shape=(1, 6, 6))
    (tmp_path / "file").write_text("x")
    for path, match in [
        (tmp_path / "nowhere", "no such file or folder"),
        (tmp_path / "file", "is not a folder"),
        (Path("x" * 5000), "cannot be read: File name too long"),
    ]:
        with pytest.raises(DataError, match=match):
            load_dataset(FolderSource(kind="folder", path=path), task)


def test_a_folder_that_may_not_be_read(root: Path, load: Load) -> None:
    (root / "cat").chmod(0)
    try:
        if os.access(root / "cat", os.R_OK):
            pytest.skip("permissions do not bind this user")
        refuse(load, "cat: permission denied")
    finally:
        (root / "cat").chmod(0o700)


def test_a_task_of_another_kind(root: Path) -> None:
    table = TableTask.model_validate(
        {
            "kind": "table",
            "classes": ("a", "b"),
            "columns": ({"kind": "numeric", "name": "age", "low": 0.0, "high": 1.0, "mean": 0.0, "std": 1.0},),
        }
    )
    with pytest.raises(DataError, match="kind 'folder' does not go with a plan whose task is of kind 'table'"):
        load_dataset(FolderSource(kind="folder", path=root), table)
    with pytest.raises(DataError, match="picture files have 1, 3 or 4 channels"):
        load_dataset(
            FolderSource(kind="folder", path=root), ImageTask(kind="image", classes=("a", "b"), shape=(2, 6, 6))
        )


def test_too_many_pictures_are_refused_before_one_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsecure.data.files.MAX_DATASET_BYTES", 100)
    (root / "cat" / "a.png").write_bytes(b"never decoded")
    task = ImageTask(kind="image", classes=("dog", "cat"), shape=(1, 6, 6))
    with pytest.raises(DataError, match=r"3 records of shape \[1, 6, 6\] need"):
        load_dataset(FolderSource(kind="folder", path=root), task)


def test_odd_names_of_folders_and_files(tmp_path: Path) -> None:
    """Spaces, decomposed accents, other scripts, long names; and the order does not depend on the locale."""
    base = tmp_path / "Bilder für Müller 北京"
    deep = base / unicodedata.normalize("NFD", "café") / ("x" * 200) / ("y" * 200)
    deep.mkdir(parents=True)
    grey().save(deep / "ein Bild.png")
    (base / "ひ").mkdir()
    grey().save(base / "ひ" / "'; rm -rf.png")
    task = ImageTask(kind="image", classes=("ひ", unicodedata.normalize("NFC", "café")), shape=(1, 6, 6))
    assert load_dataset(FolderSource(kind="folder", path=base), task).y.tolist() == [1, 0]


def test_control_characters_in_a_name_are_escaped(root: Path, load: Load) -> None:
    (root / "cat" / "\x1b[31mred\n.png").write_bytes(b"x")
    assert r"\x1b[31mred\n.png" in refuse(load, "not a picture")


def test_a_name_that_is_not_utf8(root: Path, load: Load) -> None:
    try:
        (root / os.fsdecode(b"caf\xe9")).mkdir()
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    message = refuse(load, r"folders 'caf\\udce9'")
    message.encode("utf-8")


@pytest.mark.parametrize("locale", ["C", "POSIX", "tr_TR.UTF-8", "de_DE"])
def test_other_locales(tmp_path: Path, locale: str) -> None:
    """Even where Python takes file names for ASCII, class folders keep their UTF-8 names."""
    base = tmp_path / "set"
    for name in ("é", "i"):
        (base / name).mkdir(parents=True)
        grey().save(base / name / "a.png")
    code = (
        "import sys; from pathlib import Path; from fedsecure.data import load_dataset\n"
        "from fedsecure.data.settings import FolderSource; from fedsecure.plan.task import ImageTask\n"
        "task = ImageTask(kind='image', classes=('\\u00e9', 'i'), shape=(1, 6, 6))\n"
        "data = load_dataset(FolderSource(kind='folder', path=Path(sys.argv[1])), task)\n"
        "assert data.y.tolist() == [1, 0]"
    )
    environment = {**os.environ, "LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(base)], env=environment, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
