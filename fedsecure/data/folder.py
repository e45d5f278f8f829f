"""A folder of pictures: one sub-folder a class, by name.

What an operating system leaves behind (hidden files, ``Thumbs.db``) is passed over; every other file inside a class
folder must be a picture, so that a record is never dropped in silence.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsecure.data.classes import IGNORED, UNKNOWN, ClassNames
from fedsecure.data.files import check_memory, own_name, readable, require_folder, shown
from fedsecure.data.image import Wanted, read_image
from fedsecure.data.records import labelled
from fedsecure.errors import DataError
from fedsecure.tensors import Array

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.data.settings import FolderSource
    from fedsecure.plan.task import Task

__all__ = ["load_folder", "load_pictures", "record_files"]

#: Left behind by file managers, not by people. Names that begin with a dot are passed over too.
LEFT_BEHIND = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir", "$recycle.bin"})
_PICTURE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".bmp", ".tif", ".tiff", ".gif", ".webp", ".ppm", ".pgm", ".pbm"}
)
#: Folders inside a class folder deeper than this are refused.
MAX_DEPTH = 16


def load_folder(source: FolderSource, task: Task) -> Dataset:
    """Pictures (n, channels, H, W), in the order of their paths by code points, whatever the locale.

    Raises ``DataError`` naming the file or folder: unknown class folders, files that are no pictures, damaged, of
    another size, links that lead out of the folder, pictures outside a class folder.
    """
    wanted = _wanted(task, source.path, resize=source.resize, grey=source.grey)
    require_folder(source.path)
    with readable(source.path):
        root = source.path.resolve(strict=True)
    names = ClassNames(source.classes, source.ignore, task.classes, shown(source.path))
    folders = _class_folders(source.path, root, names)
    files = [(file, i) for folder, i in folders for file in _pictures(folder, root, names, MAX_DEPTH)]
    x = _read(source.path, [file for file, _ in files], wanted)
    index = np.asarray([i for _, i in files], dtype=np.int64)
    if not source.ignore:
        return labelled(shown(source.path), x, index, task)
    places = {file: row for row, file in enumerate(record_files(source.path))}  # those of ignored folders among them
    rows = np.asarray([places[file] for file, _ in files], dtype=np.int64)
    return labelled(shown(source.path), x, index, task, rows)


def load_pictures(path: Path, task: Task, *, resize: bool, grey: bool, place: str) -> tuple[Array, list[Path]]:
    """Pictures without labels, float32 (n, channels, H, W), and their files: one picture, or all of a folder in the
    order of their paths, whatever its sub-folders are named. Raises as ``load_folder`` does, but for class folders;
    hints name ``place``, where ``resize`` and ``grey`` are set."""
    wanted = replace(_wanted(task, path, resize=resize, grey=grey), place=place)
    files = [path]
    with readable(path):
        folder = path.is_dir()
    if folder:
        with readable(path):
            root = path.resolve(strict=True)
        files = list(_pictures(path, root, None, MAX_DEPTH))
        if not files:
            raise DataError(f"{shown(path)}: holds no pictures", hint="check the path")
    return _read(path, files, wanted), files


def record_files(path: Path) -> Iterator[Path]:
    """The file of every record in every class folder of ``path``, whatever their names. Raises as ``load_folder`` does
    for what it finds on the way."""
    require_folder(path)
    with readable(path):
        root = path.resolve(strict=True)
    for entry in _entries(path):
        if _is_folder(entry, root):
            yield from _pictures(entry, root, None, MAX_DEPTH)


def _wanted(task: Task, path: Path, *, resize: bool, grey: bool) -> Wanted:
    if task.kind != "image" or task.shape[0] not in (1, 3, 4):
        raise DataError(
            f"{shown(path)}: picture files have 1, 3 or 4 channels, and the plan's records have shape "
            f"{list(task.feature_shape)}",
            hint="store such records in an .npz",
        )
    return Wanted(task.shape, resize, grey)


def _read(where: Path, files: list[Path], wanted: Wanted) -> Array:
    check_memory(shown(where), len(files), wanted.shape)
    x = np.empty((len(files), *wanted.shape), dtype=np.float32)  # (n, channels, H, W)
    for row, file in enumerate(files):
        x[row] = read_image(file, wanted)
    return x


def _entries(folder: Path) -> list[Path]:
    """What a person put into ``folder``, sorted by name."""
    with readable(folder):
        found = sorted(folder.iterdir(), key=lambda p: os.fsencode(p.name))
    return [p for p in found if not p.name.startswith(".") and p.name.lower() not in LEFT_BEHIND]


def _is_folder(path: Path, root: Path) -> bool:
    """Whether it is a folder; refuses links out of ``root``, links to folders, dead links, pipes and devices."""
    with readable(path):
        mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return _follow(path, root)
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise DataError(f"{shown(path)}: neither a file nor a folder", hint="move it out of the folder of records")
    return stat.S_ISDIR(mode)


def _follow(path: Path, root: Path) -> bool:
    with readable(path):
        try:
            target = path.resolve(strict=True)
        except RuntimeError:  # how Python before 3.13 reports a loop of links
            raise DataError(f"{shown(path)}: a link that leads to itself", hint="remove it") from None
    if not target.is_relative_to(root):
        raise DataError(
            f"{shown(path)}: a link that leads out of the folder", hint="copy the records into the folder instead"
        )
    if not target.is_file():
        raise DataError(
            f"{shown(path)}: a link to something else than a file: records would count twice", hint="remove the link"
        )
    return False


def _class_folders(given: Path, root: Path, names: ClassNames) -> list[tuple[Path, int]]:
    """(folder, class index) of each class folder that is not ignored."""
    folders: list[Path] = []
    for path in _entries(given):
        if _is_folder(path, root):
            folders.append(path)
        elif path.suffix.lower() in _PICTURE_SUFFIXES:
            raise DataError(
                f"{shown(path)}: a picture outside a class folder", hint="move it into the folder of its class"
            )
    if not folders:
        raise DataError(f"{shown(given)}: has no class folders", hint="make one sub-folder a class, named as the class")
    indices = names.indices([own_name(p) for p in folders], "folders")
    return [(p, i) for p, i in zip(folders, indices, strict=True) if i != IGNORED]


def _pictures(folder: Path, root: Path, names: ClassNames | None, depth: int) -> Iterator[Path]:
    """Every file below a class folder. A nested folder (a patient, a visit) belongs to the class, unless it bears a
    class's name. Without ``names`` there are no classes."""
    if depth == 0:
        raise DataError(f"{shown(folder)}: folders nested more than {MAX_DEPTH} deep")
    for path in _entries(folder):
        if not _is_folder(path, root):
            yield path
            continue
        if names is not None and names.index(own_name(path)) != UNKNOWN:
            raise DataError(
                f"{shown(path)}: a folder named as a class, inside another class's folder", hint="move it one level up"
            )
        yield from _pictures(path, root, names, depth - 1)
