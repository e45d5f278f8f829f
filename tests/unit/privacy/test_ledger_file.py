"""The ledger's file: durable, private, alone under its name, and refused in one line where it is anything else."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from charging import ONE, WHAT, charge, composed, records

from fedsecure.errors import ConfigError, LocalProtocolError, PrivacyBudgetExceeded, StoreError
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.ledgerfile import FORMAT

HERE = Path(__file__).parent


def test_only_its_owner_sees_it_and_a_commit_is_on_the_disk(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        ledger = Ledger(tmp_path / "ledger.db")
    finally:
        os.umask(old)
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    connection = ledger._file._connection
    assert connection.execute("PRAGMA synchronous").fetchone()[0] == 3  # EXTRA: the folder too
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"


def test_the_file_alone_is_the_whole_ledger(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        data_set = ledger.data_set(records("a"))
        charge(ledger, data_set, 3)
        shutil.copy(ledger.path, tmp_path / "backup.db")  # while it is open
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "ledger.db"]
    with Ledger(tmp_path / "backup.db", "read") as backup:
        assert (backup.identity, backup.counter) == (ledger.identity, 1)


def test_a_link_leads_to_the_one_ledger(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "disk" / "ledger.db")
    with Ledger(tmp_path / "link.db") as ledger:
        assert ledger.path == tmp_path / "disk" / "ledger.db"
        charge(ledger, data_set := ledger.data_set(records("a")))
    with Ledger(tmp_path / "disk" / "ledger.db") as same:
        assert same.history(data_set) == (ONE,)


def test_a_second_name_is_refused_even_one_that_comes_later(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        data_set = ledger.data_set(records("a"))
        os.link(tmp_path / "ledger.db", tmp_path / "twin.db")
        with pytest.raises(StoreError, match="2 names"):
            charge(ledger, data_set)
    with pytest.raises(StoreError, match=r"twin\.db: has 2 names \(hard links\)"):
        Ledger(tmp_path / "twin.db")


def test_one_that_others_can_read_is_refused(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").close()
    (tmp_path / "ledger.db").chmod(0o640)
    with pytest.raises(StoreError, match="mode 0640") as refused:
        Ledger(tmp_path / "ledger.db")
    assert refused.value.hint.startswith("chmod 600")


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no privacy ledger there"):
        Ledger(tmp_path / "ledger.db", "read")
    (tmp_path / "empty.db").touch(0o600)  # as a crash right after its making leaves it
    with pytest.raises(ConfigError, match="nothing was charged yet"):
        Ledger(tmp_path / "empty.db", "read")
    assert (tmp_path / "empty.db").stat().st_size == 0
    with Ledger(tmp_path / "empty.db") as ledger:
        assert ledger.counter == 0


def test_a_reader_cannot_charge(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        data_set = ledger.data_set(records("a"))
    with Ledger(tmp_path / "ledger.db", "read") as reader, pytest.raises(StoreError, match="readonly"):
        charge(reader, data_set)


def test_what_is_no_ledger_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("of another kind altogether " * 100)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE entries (x)")
    other.close()
    (tmp_path / "folder").mkdir()
    for path, words in (
        ("notes.txt", "not a database"),
        ("other.db", "not a privacy ledger"),
        ("folder", "not a file"),
    ):
        (tmp_path / path).chmod(0o600)
        with pytest.raises(StoreError, match=words):
            Ledger(tmp_path / path)
    assert "another kind" in (tmp_path / "notes.txt").read_text()
    with pytest.raises(StoreError, match=r"missing/ledger\.db: cannot be made"):
        Ledger(tmp_path / "missing" / "ledger.db")


def test_a_ledger_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").close()
    by_hand = sqlite3.connect(tmp_path / "ledger.db")
    by_hand.execute(f"PRAGMA user_version={FORMAT + 1}")
    by_hand.close()
    with pytest.raises(StoreError, match=f"format {FORMAT + 1}, this version knows format {FORMAT}"):
        Ledger(tmp_path / "ledger.db")


def test_a_damaged_ledger_says_backup(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        charge(ledger, ledger.data_set(records("a")))
    with ledger.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 16_384)
    with pytest.raises(StoreError, match="malformed") as found, Ledger(ledger.path) as damaged:
        damaged.entries()
    assert "backup" in found.value.hint


def test_one_that_is_moved_or_replaced_in_use_pays_for_nothing(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        data_set = ledger.data_set(records("a"))
        charge(ledger, data_set, 4)
        shutil.copy(ledger.path, tmp_path / "older.db")
        charge(ledger, data_set, 4)
        (tmp_path / "older.db").rename(ledger.path)
        with pytest.raises(StoreError, match="moved, removed or replaced"):
            charge(ledger, data_set)
        ledger.path.unlink()
        with pytest.raises(StoreError, match="moved, removed or replaced"):
            charge(ledger, data_set)


_FULL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from charging import charge, records
from fedsecure.errors import StoreError
from fedsecure.privacy.ledger import Ledger
with Ledger(Path(sys.argv[1])) as ledger:
    data_set = ledger.data_set(records("a"))
    charge(ledger, data_set, 3)
    size = ledger.path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    paid = 1
    try:
        for _ in range(1000):
            charge(ledger, data_set)
            paid += 1
    except StoreError as error:
        print(paid, error, "|", error.hint)
"""


def test_where_there_is_no_room_nothing_is_spent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path / "ledger.db"), str(HERE)],
        capture_output=True, text=True, check=True, timeout=240,
    )  # fmt: skip
    paid, words = done.stdout.split(" ", maxsplit=1)
    assert "ledger.db: the privacy ledger cannot be used" in words
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert ledger.counter == int(paid)
        charge(ledger, ledger.data_set(records("a")))


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger._file._process += 1  # as a child sees it
    with pytest.raises(LocalProtocolError, match="another process"):
        ledger.data_set(records("a"))


def test_threads_of_one_process_spend_in_turn(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        data_set, paid = ledger.data_set(records("a")), []

        def spend() -> None:
            for _ in range(5):
                try:
                    ledger.charge(data_set, (ONE,), cap=12, delta=1e-5, what=WHAT, epsilon=composed)
                    paid.append(1)
                except PrivacyBudgetExceeded:
                    pass

        threads = [threading.Thread(target=spend) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(paid) == ledger.counter == 12


def test_who_only_reads_says_that_a_crash_is_still_to_be_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        charge(ledger, ledger.data_set(records("a")))
    died_in_a_commit = (
        "import os, sqlite3, sys\n"
        "ledger = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for sql in ('PRAGMA cache_size=1', 'BEGIN IMMEDIATE'): ledger.execute(sql)\n"
        "for n in range(2000): ledger.execute('INSERT INTO meta VALUES (?, ?)', (str(n), os.urandom(16)))\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", died_in_a_commit, str(path)], check=False).returncode == 9
    with pytest.raises(StoreError, match="a crash cut a charge short") as refused:
        Ledger(path, "read")
    assert "start the node" in refused.value.hint
    with Ledger(path) as ledger:
        assert ledger.counter == 1
    Ledger(path, "read").close()
