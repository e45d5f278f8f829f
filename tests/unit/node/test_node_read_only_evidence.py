"""Evidence is verified from a copy that may only be read, by anybody, beside a daemon that writes; nothing changes."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from fedsecure.crypto.signatures import load_identity, public_identity_pem
from fedsecure.errors import ReleaseLogError, StoreError
from fedsecure_node.cli.verification import verify_store
from fedsecure_node.log.decisions import note
from fedsecure_node.store.database import FULL, Database
from fedsecure_node.store.snapshot import snapshot

AS_NOBODY = """
import os, sys
from pathlib import Path
from fedsecure.crypto.signatures import load_public_identity
from fedsecure_node.cli.verification import verify_store
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
store = Path(sys.argv[1])
assert not os.access(store, os.W_OK)
print(len(verify_store(store, load_public_identity(store / "identity.pub")).records))
"""


def listing(folder):
    return {
        str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"")
        for p in [folder, *folder.rglob("*")]
    }


def test_a_copy_that_may_only_be_read_is_verified_by_another_user(node, make_release):
    make_release()  # the database stays open: its last writes are in the write-ahead log
    make_release("statistics", hold=True)
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "copy"
        shutil.copytree(node.settings.store, copy)
        assert (copy / "store.db-wal").stat().st_size > 0
        (copy / "store.db-shm").unlink()
        (copy / "releases.lock").unlink()
        (copy / "identity.pub").write_bytes(public_identity_pem(load_identity(node.settings.identity).public_bytes))
        for path in copy.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        copy.chmod(0o555)
        Path(place).chmod(0o755)
        before = listing(copy)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(copy)], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr
        assert listing(copy) == before
        copy.chmod(0o755)
        for path in copy.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_verifying_beside_a_daemon_that_writes_is_consistent_and_changes_nothing(node, make_release):
    public = load_identity(node.settings.identity).public_bytes
    for round_ in range(8):
        make_release(round_=round_)
    numbers = list(node.log.releases())

    def write():
        for number in numbers:
            note(node.log, number, "sending")
            note(node.log, number, "acknowledged")

    writer = threading.Thread(target=write)
    writer.start()
    seen = [len(verify_store(node.settings.store, public).records) for _ in range(5)]
    writer.join(60)
    before = listing(node.settings.store)
    seen.append(len(verify_store(node.settings.store, public).records))
    assert listing(node.settings.store) == before
    assert seen == sorted(seen)
    assert seen[-1] == 24


@pytest.mark.parametrize("checkpoint", ["PASSIVE", "TRUNCATE", "RESTART"])
def test_a_snapshot_holds_what_was_committed_and_nothing_else(tmp_path, checkpoint):
    path = tmp_path / "a.db"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("PRAGMA wal_autocheckpoint=0")
    writer.execute("CREATE TABLE t (n INTEGER, text TEXT)")
    writer.executemany("INSERT INTO t VALUES (?, ?)", [(i, "x" * 900) for i in range(50)])
    writer.execute(f"PRAGMA wal_checkpoint({checkpoint})")
    writer.execute("DELETE FROM t WHERE n < 10")
    writer.execute("BEGIN")
    writer.execute("PRAGMA cache_size=1")
    writer.executemany("INSERT INTO t VALUES (?, ?)", [(i, "y" * 900) for i in range(100, 300)])  # spills, uncommitted
    found = snapshot(path)
    assert [r["n"] for r in found.execute("SELECT n FROM t ORDER BY n")] == list(range(10, 50))
    assert found.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    found.close()
    writer.execute("COMMIT")
    found = snapshot(path)
    assert found.execute("SELECT count(*) FROM t").fetchone()[0] == 240
    found.close()
    writer.close()


def test_a_damaged_database_is_named(tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match=r"store\.db: is damaged"):
        snapshot(path)


def test_a_full_disk_asks_for_space_and_damage_for_a_backup(tmp_path):
    path = tmp_path / "store.db"
    database = Database(path)
    pages = database.row("PRAGMA page_count")[0]
    database.rows(f"PRAGMA max_page_count={pages}")  # SQLite says of it what it says of a full disk
    with pytest.raises(StoreError, match="full") as caught:
        database.write("INSERT INTO meta VALUES ('a', ?)", ("x" * 100_000,))
    assert caught.value.hint == FULL
    assert "backup" not in caught.value.hint
    database.close()
    path.write_bytes(b"no database" * 1000)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    with pytest.raises(StoreError) as caught:
        Database(path)
    assert "damaged: restore the store from a backup" in caught.value.hint


@pytest.mark.parametrize("begun", ["no byte", "a log and no table"])
def test_a_store_without_tables_was_emptied_or_is_just_being_made(node, make_release, tmp_path, begun):
    make_release()
    copy = tmp_path / "copy"
    shutil.copytree(node.settings.store, copy)
    for path in copy.glob("store.db*"):
        path.unlink()
    (copy / "store.db").touch(mode=0o600)
    if begun != "no byte":
        maker = sqlite3.connect(copy / "store.db")
        maker.execute("PRAGMA journal_mode=WAL")
        maker.close()
    with pytest.raises(ReleaseLogError, match="nothing is in it, not even where the release log ends"):
        verify_store(copy, load_identity(node.settings.identity).public_bytes)
