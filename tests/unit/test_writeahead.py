"""A store that several processes open in the moment in which it is made: all of them get it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedsecure.errors import StoreError
from fedsecure.files import make_empty
from fedsecure.writeahead import write_ahead
from fedsecure_coordinator.store import database as coordinators
from fedsecure_node.store import database as nodes

OPENERS = {
    "node": nodes.Database,
    "coordinator": lambda path: coordinators.Database(path, ("CREATE TABLE jobs (name TEXT)",), "create"),
}


@pytest.fixture(params=list(OPENERS))
def opened(request):
    return OPENERS[request.param]


@pytest.fixture
def being_made(tmp_path):
    """A file without a write-ahead log that another connection is writing to: nobody else can give it a log."""
    path = tmp_path / "store.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE other (name TEXT)")
    other.execute("BEGIN IMMEDIATE")
    yield path, other
    other.close()


def test_who_comes_while_the_file_is_in_use_waits(opened, being_made):
    path, other = being_made
    impatient = sqlite3.connect(path, timeout=250)  # SQLite itself does not wait, or this would not end in time
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        impatient.execute("PRAGMA journal_mode=WAL")
    impatient.close()
    end = threading.Timer(0.3, lambda: other.execute("COMMIT"))
    began = time.monotonic()
    end.start()
    database = opened(path)
    assert time.monotonic() - began >= 0.3
    database.close()
    end.join()
    with sqlite3.connect(path) as look:
        assert look.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    look.close()


def test_but_not_for_ever(opened, being_made, monkeypatch):
    path, _ = being_made
    monkeypatch.setattr(nodes, "BUSY_S", 0.2)
    monkeypatch.setattr(coordinators, "BUSY_SECONDS", 0.2)
    with pytest.raises(StoreError, match="store.db.*(busy|locked)"):
        opened(path)


def test_what_is_no_wait_is_told_at_once(tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(b"no database at all, by far" * 100)
    connection = sqlite3.connect(path)
    began = time.monotonic()
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        write_ahead(connection, 600)
    connection.close()
    assert time.monotonic() - began < 300


OPENING = """
import sys
from pathlib import Path
from fedsecure_node.store.database import Database
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    database = Database(Path(sys.argv[1]) / f"{number}.db")
    database.write("INSERT INTO meta VALUES (?, '')", (sys.argv[2],))
    database.close()
"""


def test_processes_that_make_the_same_stores_all_write_to_them(tmp_path):
    names = ["a", "b", "c"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPENING, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        assert process.communicate(timeout=200)[1] == ""
        assert process.returncode == 0
    for number in range(20):
        with sqlite3.connect(tmp_path / f"{number}.db") as look:
            assert [row[0] for row in look.execute("SELECT key FROM meta ORDER BY key")] == [*names, "format"]
        look.close()


def test_an_empty_file_is_made_once_and_never_opened_again(tmp_path):
    """To close a file is to give up the locks that SQLite holds on it in this process."""
    path = tmp_path / "store.db"
    assert make_empty(path) is True
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"kept")
    assert make_empty(path) is False
    assert path.read_bytes() == b"kept"
    with pytest.raises(StoreError, match="absent.*cannot be made"):
        make_empty(tmp_path / "absent" / "store.db")


def test_no_thread_gets_a_file_that_another_is_still_making(tmp_path, monkeypatch):
    """Whoever made it closes it then, and with it gives up the locks of all threads."""
    path, began, go_on, order = tmp_path / "store.db", threading.Event(), threading.Event(), []

    def slow(number):
        began.set()
        assert go_on.wait(60)
        order.append("made")

    monkeypatch.setattr("fedsecure.files.os.fsync", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(make_empty, path)
        assert began.wait(60)
        assert path.exists()
        second = pool.submit(lambda: (make_empty(path), order.append("got")))
        with pytest.raises(TimeoutError):
            second.result(0.3)
        go_on.set()
        assert first.result(60) is True
        assert second.result(60)[0] is False
    assert order == ["made", "made", "got"]  # the file and its folder


CLOSING = """
import sys, threading
from pathlib import Path
from fedsecure.errors import StoreError
from fedsecure_node.store.database import Database
for number in range(40):
    database, ends, busy = Database(Path(sys.argv[1]) / f"{number}.db"), [], threading.Event()
    def use():
        try:
            while True:
                database.write("INSERT OR REPLACE INTO meta VALUES ('k', '1')")
                database.rows("SELECT * FROM meta")
                busy.set()
        except StoreError as error:
            ends.append(str(error))
    thread = threading.Thread(target=use)
    thread.start()
    busy.wait()
    database.close()
    thread.join()
    assert "closed database" in ends[0], ends
"""


def test_a_store_is_closed_while_another_thread_uses_it(tmp_path):
    """SQLite frees what the other thread is working on, if nobody looks after that: the process would end."""
    done = subprocess.run(
        [sys.executable, "-c", CLOSING, str(tmp_path)], capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
