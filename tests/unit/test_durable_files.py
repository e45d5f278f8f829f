"""Files that are whole or absent, with the modes they were asked for, and one line for every fault."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from fedsecure.errors import ConfigError, FedSecureError, StoreError
from fedsecure.files import (
    create_durably,
    exists,
    faults,
    make_folder,
    private_folder,
    remove_unfinished,
    replacing,
    write_durably,
)


def interrupted(path: Path, by: BaseException) -> None:
    with replacing(path) as file:
        file.write(b"half")
        raise by


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o077, 0o777])
@pytest.mark.parametrize("wanted", [0o600, 0o644])
def test_a_file_has_the_mode_it_was_asked_for(tmp_path: Path, umask: int, wanted: int) -> None:
    old = os.umask(umask)
    try:
        write_durably(tmp_path / "a", b"one", mode=wanted)
        write_durably(tmp_path / "a", b"two", mode=wanted)
        create_durably(tmp_path / "b", b"three", mode=wanted)
        private_folder(tmp_path / "c")
    finally:
        os.umask(old)
    assert [mode(tmp_path / name) for name in "abc"] == [wanted, wanted, 0o700]
    assert (tmp_path / "a").read_bytes() == b"two"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_link_is_replaced_and_never_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"untouched")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        create_durably(tmp_path / "link", b"x")
    write_durably(tmp_path / "link", b"fresh")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"untouched"


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.ENOSPC, "free space"), (errno.EROFS, "mount"), (errno.EIO, "health"), (errno.EDQUOT, "quota")],
)
def test_a_fault_leaves_the_old_file_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    write_durably(tmp_path / "old", b"old")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(StoreError, match=f"old: cannot be written: {os.strerror(number)}") as caught:
            write_durably(tmp_path / "old", b"new")
        assert hint in caught.value.hint
        with pytest.raises(OSError, match=os.strerror(number)):
            create_durably(tmp_path / "new", b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("old", b"old")]


def test_a_block_that_fails_changes_nothing(tmp_path: Path) -> None:
    write_durably(tmp_path / "old", b"old")
    with pytest.raises(KeyError):
        interrupted(tmp_path / "old", KeyError())
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("old", b"old")]


def test_what_a_crash_left_is_taken_away_and_nothing_else(tmp_path: Path) -> None:
    write_durably(tmp_path / "kept", b"")
    (tmp_path / ".kept").write_bytes(b"")
    with pytest.MonkeyPatch.context() as crash:
        crash.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(SystemExit):
            interrupted(tmp_path / "kept", SystemExit())
    assert len(list(tmp_path.iterdir())) == 3
    remove_unfinished(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".kept", "kept"]


def test_faults_name_the_path_in_one_line_that_steers_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path, words in (
        (tmp_path / "no" / "where", "cannot be written: No such file"),
        (tmp_path / "file" / "x", "cannot be written: Not a directory"),
        (tmp_path / ("x" * 300), "cannot be written: File name too long"),
        (Path("a\0b"), "a path holds no NUL character"),
        (tmp_path, "cannot be written: Is a directory"),
    ):
        with pytest.raises(ConfigError, match=words):
            write_durably(path, b"", error=ConfigError)
    with pytest.raises(FedSecureError) as caught:
        write_durably(tmp_path / "\x1b[2Jno" / "where", b"", error=ConfigError)
    assert "\x1b" not in str(caught.value)
    with pytest.raises(ValueError, match="other"), faults(tmp_path):
        raise ValueError("other")


def test_folders(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b", private=True)
    assert mode(tmp_path / "a" / "b") == 0o700
    make_folder(tmp_path / "a" / "b")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="file: cannot be made a folder"):
        make_folder(tmp_path / "file", error=ConfigError)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    for name in ("file", "link"):
        with pytest.raises(StoreError, match=f"{name}: is not a folder"):
            private_folder(tmp_path / name)
    (tmp_path / "a").chmod(0o750)
    with pytest.raises(StoreError, match="mode 0750 lets others look into it") as caught:
        private_folder(tmp_path / "a")
    assert caught.value.hint == f"chmod 700 {tmp_path / 'a'}"
    assert exists(tmp_path / "a")
    assert not exists(tmp_path / "nothing")
