"""Files and options that are not what they should be: one line that names the thing, exit code 2, and no traceback;
what can be audited, however odd, ends in a verdict."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from audited_people import QUICK, audited, rows

from fedsecure.cli import run
from fedsecure_attacks import loading
from fedsecure_attacks.files import audit_files
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.verdict import Word


@pytest.fixture
def four(tmp_path):
    rng, files = np.random.default_rng(0), {}
    for name, n in (("members", 24), ("nonmembers", 60), ("released", 4), ("reference", 40)):
        made = rows(name, n, rng, features=4)
        files[name] = tmp_path / f"{name}.npz"
        np.savez(files[name], x=made.x, y=made.y)
    return files


def refused(files: dict[str, Path], capsys, *more: str) -> str:
    """The one line of an audit that ends with exit code 2."""
    options = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    assert run(["audit", "files", *options, *more]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    return said.err


def header(shape: tuple[int, ...], descr: str) -> bytes:
    """The first bytes of a .npy file of ``shape``, whatever follows."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def archive(path: Path, x: bytes, y: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", x)
        file.writestr("y.npy", y)


@pytest.mark.parametrize("shape", [(1 << 20, 1 << 12), (1 << 62, 8), (2, 1 << 61), (10**9, 10**9, 10**9)])
def test_shapes_beyond_memory_are_refused_before_anything_is_read(four, capsys, shape):
    archive(four["released"], header(shape, "<f4") + b"\0" * 64, header((4,), "<i8") + b"\0" * 32)
    assert "released.npz" in refused(four, capsys)


def test_a_zip_bomb_is_not_unpacked(four, capsys, monkeypatch):
    """Sixteen megabytes of zeros in as many kilobytes, where one is allowed."""
    monkeypatch.setattr(loading, "MOST_BYTES", 1 << 20)
    archive(four["released"], header((1 << 20, 4), "<f4") + bytes(1 << 24), header((4,), "<i8") + bytes(32))
    assert four["released"].stat().st_size < 1 << 16
    assert "has 16777216 bytes (allowed: 1048576)" in refused(four, capsys)


CONTENT = {
    "objects": (np.array([{}] * 4, dtype=object), np.zeros(4, np.int64)),
    "complex": (np.zeros((4, 4), np.complex64), np.zeros(4, np.int64)),
    "strings": (np.full((4, 4), "a"), np.zeros(4, np.int64)),
    "fields": (np.zeros(4, dtype=[("a", "f4")]), np.zeros(4, np.int64)),
    "dates": (np.zeros((4, 4), "M8[s]"), np.zeros(4, np.int64)),
    "booleans": (np.zeros((4, 4), np.bool_), np.zeros(4, np.int64)),
    "a number": (np.float32(1.0), np.zeros(4, np.int64)),
    "five axes": (np.zeros((4, 1, 2, 2, 2), np.float32), np.zeros(4, np.int64)),
    "no columns": (np.zeros((4, 0), np.float32), np.zeros(4, np.int64)),
    "no pixels": (np.zeros((4, 1, 0, 8), np.float32), np.zeros(4, np.int64)),
    "a million columns": (np.zeros((4, 10**6), np.float32), np.zeros(4, np.int64)),
    "negative labels": (np.zeros((4, 4), np.float32), np.array([0, 1, -1, 0])),
    "labels that are identifiers": (np.zeros((4, 4), np.float32), np.array([0, 1, 2**40, 0])),
    "labels beyond 63 bits": (np.zeros((4, 4), np.float32), np.full(4, 2**64 - 1, np.uint64)),
    "labels of halves": (np.zeros((4, 4), np.float32), np.full(4, 0.5)),
    "labels that are no numbers": (np.zeros((4, 4), np.float32), np.full(4, np.nan)),
    "labels beyond all floats": (np.zeros((4, 4), np.float32), np.full(4, 1e300)),
    "one-hot labels": (np.zeros((4, 4), np.float32), np.eye(4)),
    "fewer labels": (np.zeros((4, 4), np.float32), np.zeros(3, np.int64)),
}


@pytest.mark.parametrize("what", list(CONTENT))
def test_arrays_that_are_not_what_they_should_be(four, capsys, what):
    x, y = CONTENT[what]
    np.savez(four["released"], x=x, y=y)
    said = refused(four, capsys)
    assert "released.npz" in said
    assert "'x'" in said or "'y'" in said or "pickles" in said


def test_things_that_are_no_archives(four, tmp_path, capsys):
    four["released"].write_bytes(b"PK\x03\x04 not really")
    assert "not a whole .npz archive" in refused(four, capsys)
    assert str(tmp_path) in refused({**four, "released": tmp_path}, capsys)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "pipe" in refused({**four, "released": pipe}, capsys)
    assert "/dev/zero" in refused({**four, "released": Path("/dev/zero")}, capsys)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--max-tpr", "nan"), ("--max-tpr", "0.01"), ("--max-tpr", "0"), ("--max-tpr", "inf"), ("--max-tpr", "1e-300"),
        ("--max-auc", "nan"), ("--max-auc", "0.2"), ("--max-auc", "2"), ("--seed", "-1"), ("--seed", "1e3"),
        ("--seed", str(10**30)), ("--min-class", "0"),
    ],
)  # fmt: skip
def test_absurd_options_are_refused(four, capsys, option, value):
    refused(four, capsys, option, value)


def test_records_of_different_shapes_are_invalid(four, tmp_path, capsys):
    np.savez(four["nonmembers"], x=np.zeros((60, 5), np.float32), y=np.arange(60) % 2)
    options = [part for name, path in four.items() for part in (f"--{name}", str(path))]
    assert run(["audit", "files", *options, "--json"]) == 12
    assert "records of different shapes" in json.loads(capsys.readouterr().out)["reason"]


def images(name: str, n: int, shape: tuple[int, ...], rng: np.random.Generator) -> Labelled:
    return Labelled(name, rng.random((n, *shape)).astype(np.float32), np.arange(n, dtype=np.int64) % 2)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 40), (3, 2, 5), (6, 6, 3), (1,)])
def test_odd_shapes_end_in_a_verdict(shape):
    """Strips, single pixels, channels last, tables of one column."""
    rng = np.random.default_rng(1)
    parts = tuple(images(name, n, shape, rng) for name, n in (("members", 24), ("non-members", 60), ("reference", 40)))
    verdict = audited(parts, images("released", 4, shape, rng)).verdict
    assert verdict.word in (Word.INCONCLUSIVE, Word.INVALID), verdict


@pytest.mark.parametrize("given", [True, False])
def test_everybody_in_a_class_of_their_own_ends_in_a_verdict(given):
    rng = np.random.default_rng(2)

    def alone(name: str, n: int) -> Labelled:
        return Labelled(name, rng.standard_normal((n, 4)).astype(np.float32), np.arange(n, dtype=np.int64))

    others = alone("reference", 20) if given else None
    verdict = audit_files(alone("members", 12), alone("non-members", 20), alone("released", 5), others, QUICK).verdict
    assert verdict.word in (Word.INCONCLUSIVE, Word.INVALID), verdict


@pytest.mark.parametrize(("n1", "n0"), [(1, 1), (1, 2), (1, 40), (40, 1), (2, 3)])
def test_hardly_anybody_ends_in_a_verdict(n1, n0):
    rng = np.random.default_rng(3)
    verdict = audit_files(rows("members", n1, rng), rows("non-members", n0, rng), rows("released", 2, rng), None, QUICK)
    assert verdict.verdict.word in (Word.INCONCLUSIVE, Word.INVALID)


def test_a_set_of_classes_that_nobody_has_ends_in_a_verdict():
    rng = np.random.default_rng(4)
    parts = tuple(rows(name, n, rng) for name, n in (("members", 24), ("non-members", 60), ("reference", 40)))
    released = Labelled("released", rows("released", 4, rng).x, np.full(4, 9, np.int64))
    audit = audited(parts, released)
    assert audit.verdict.word is Word.INVALID
    assert "the references have none of the released classes" in audit.verdict.reason
