"""Content-addressed files."""

from __future__ import annotations

import hashlib

import pytest

from fedsecure.errors import StoreError
from fedsecure_coordinator.store.blobs import BlobStore


def test_a_blob_comes_back(tmp_path):
    store = BlobStore(tmp_path / "blobs")
    digest = store.put(b"hello")
    assert digest == hashlib.sha256(b"hello").hexdigest()
    assert store.put(b"hello") == digest
    assert store.get(digest) == b"hello"
    assert store.size(digest) == 5
    assert b"".join(store.chunks(digest, 1, 2)) == b"ello"
    assert store.digests() == [digest]
    assert (tmp_path / "blobs").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "blobs" / digest).stat().st_mode & 0o777 == 0o600
    store.remove(digest)
    store.remove(digest)
    assert not store.has(digest)


def test_what_is_removed_while_it_is_sent_is_sent_whole(tmp_path):
    store = BlobStore(tmp_path)
    digest = store.put(b"hello")
    pieces = store.chunks(digest, 0, 2)
    store.remove(digest)
    assert b"".join(pieces) == b"hello"


def test_damage_is_named(tmp_path):
    store = BlobStore(tmp_path)
    digest = store.put(b"hello")
    (tmp_path / digest).write_bytes(b"hullo")
    with pytest.raises(StoreError, match=f"blob {digest[:12]}: damaged on disk"):
        store.get(digest)
    with pytest.raises(StoreError, match="is gone"):
        store.get("0" * 64)


@pytest.mark.parametrize("name", ["../journal.sqlite", "", "A" * 64, "0" * 63, "/etc/passwd"])
def test_names_that_are_no_digests_are_refused(tmp_path, name):
    with pytest.raises(StoreError, match="64 lower-case hexadecimal digits"):
        BlobStore(tmp_path).get(name)


def test_left_overs_of_a_crash_are_removed(tmp_path):
    (tmp_path / ".x.unfinished").write_bytes(b"half")
    store = BlobStore(tmp_path)
    store.clean()
    assert list(tmp_path.iterdir()) == []
