"""Secrets on disk: how they are made, and which ones are refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fedsecure.crypto.keyfiles import (
    MAX_FILE_BYTES,
    make_private_folder,
    read_public,
    read_secret,
    replace_secret,
    write_public,
    write_secret,
)
from fedsecure.errors import CertificateError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_secrets_are_0600_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_secret(tmp_path / "key", b"secret")
        write_public(tmp_path / "cert", b"public")
    finally:
        os.umask(before)
    assert mode(tmp_path / "key") == 0o600
    assert mode(tmp_path / "cert") == 0o644
    assert read_secret(tmp_path / "key") == b"secret"


def test_a_secret_is_never_overwritten(tmp_path):
    write_secret(tmp_path / "key", b"first")
    with pytest.raises(CertificateError, match="exists already"):
        write_secret(tmp_path / "key", b"second")
    assert (tmp_path / "key").read_bytes() == b"first"


def test_a_secret_is_not_written_through_a_link(tmp_path):
    for target in (tmp_path / "there", tmp_path / "dangling"):
        (tmp_path / "there").write_bytes(b"untouched")
        link = tmp_path / f"link-to-{target.name}"
        link.symlink_to(target)
        with pytest.raises(CertificateError, match="exists already"):
            write_secret(link, b"secret")
    assert (tmp_path / "there").read_bytes() == b"untouched"
    assert not (tmp_path / "dangling").exists()


@pytest.mark.parametrize("write", [write_public, replace_secret])
def test_replacing_swaps_a_link_for_a_file_and_leaves_its_target(tmp_path, write):
    (tmp_path / "target").write_bytes(b"untouched")
    (tmp_path / "file").symlink_to(tmp_path / "target")
    write(tmp_path / "file", b"fresh")
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"fresh"
    assert (tmp_path / "target").read_bytes() == b"untouched"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "target"]


@pytest.mark.parametrize("loose", [0o640, 0o604, 0o620, 0o602, 0o644, 0o660, 0o777, 0o610])
def test_a_secret_that_others_can_get_at_is_refused_with_the_fix(tmp_path, loose):
    path = tmp_path / "tls.key"
    write_secret(path, b"secret")
    path.chmod(loose)
    with pytest.raises(CertificateError, match=f"mode {loose:04o}") as caught:
        read_secret(path)
    assert caught.value.hint == f"chmod 600 {path}"


def test_a_secret_of_another_user_is_refused(tmp_path, monkeypatch):
    write_secret(tmp_path / "key", b"secret")
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    with pytest.raises(CertificateError, match=f"belongs to user {ours}, but user {ours + 1} runs this"):
        read_secret(tmp_path / "key")


def test_a_secret_in_a_folder_that_everybody_writes_to_is_refused(tmp_path):
    folder = tmp_path / "open"
    make_private_folder(folder)
    write_secret(folder / "key", b"secret")
    folder.chmod(0o777)
    with pytest.raises(CertificateError, match="everybody can write") as caught:
        read_secret(folder / "key")
    assert caught.value.hint == f"chmod 700 {folder}"
    folder.chmod(0o1777)  # sticky, as /tmp: nobody can replace the file of another
    assert read_secret(folder / "key") == b"secret"


def test_what_is_no_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path, fault in (
        (tmp_path / "missing", "no such file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / "missing" / "deeper", "no such file"),
        (Path("nul\0byte"), "cannot be read"),
    ):
        with pytest.raises(CertificateError, match=fault):
            read_secret(path)
        with pytest.raises(CertificateError, match=fault):
            read_public(path, "certificate")


def test_a_giant_is_not_read_whole(tmp_path):
    path = tmp_path / "giant"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES * 100)
    with pytest.raises(CertificateError, match="larger than"):
        read_public(path, "certificate")


def test_writing_where_nothing_can_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for write in (write_secret, write_public):
        with pytest.raises(CertificateError, match="cannot be written"):
            write(tmp_path / "missing" / "key", b"x")
    with pytest.raises(CertificateError, match="cannot be written: Is a directory"):
        write_public(tmp_path, b"x")
    with pytest.raises(CertificateError, match="cannot be made"):
        make_private_folder(tmp_path / "file" / "folder")


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    write_public(tmp_path / "old", b"old")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(CertificateError, match="No space left"):
            write_secret(tmp_path / "key", b"secret")
        with pytest.raises(CertificateError, match="No space left"):
            write_public(tmp_path / "old", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"


def test_private_folder_is_0700(tmp_path):
    make_private_folder(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700
    make_private_folder(tmp_path / "a" / "b")
