"""The journal: durable, transactional, parameters only."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from fedsecure.errors import StoreError
from fedsecure_coordinator.store.journal import Journal, RunRow, Submission

ROW = RunRow("d" * 64, "plan'); DROP TABLE runs; --", b"{}", 17)


@pytest.fixture
def journal(tmp_path):
    opened = Journal(tmp_path / "j.sqlite")
    yield opened
    opened.close()


def test_runs_come_back_after_reopening(tmp_path, journal):
    assert journal.add_run(ROW)
    assert not journal.add_run(replace(ROW, name="another"))
    journal.save_run(replace(ROW, phase="JOINING", machine="{}"))
    with_other = Journal(tmp_path / "j.sqlite")
    assert with_other.runs() == [replace(ROW, phase="JOINING", machine="{}")]
    assert with_other.digests() == [ROW.digest]
    with_other.close()


def test_settings_that_make_it_durable(tmp_path, journal):
    assert journal._read("PRAGMA journal_mode") == [("wal",)]
    assert journal._read("PRAGMA synchronous") == [(2,)]
    assert (tmp_path / "j.sqlite").stat().st_mode & 0o777 == 0o600


def test_a_transaction_is_all_or_nothing(journal):
    journal.add_run(ROW)

    def breaks():
        with journal.transaction():
            journal.add_event(ROW.digest, 1, "joined", {"node": "a"})
            with journal.transaction():
                journal.set_metric(ROW.digest, 0, "loss", 1.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        breaks()
    assert journal.events(ROW.digest) == []
    assert journal.metrics(ROW.digest) == {}
    journal.add_event(ROW.digest, 2, "joined", {"node": "ä"})
    assert journal.events(ROW.digest) == [(2, "joined", {"node": "ä"})]


def test_one_contribution_for_a_slot(journal):
    entry = Submission(ROW.digest, 0, "one", 0, "a", "e" * 64, b"key", 10, 5)
    journal.add_submission(entry)
    assert journal.submissions(ROW.digest, 0, "one", 0) == {"a": entry}
    with pytest.raises(StoreError, match="UNIQUE"):
        journal.add_submission(replace(entry, payload="f" * 64))
    assert journal.needed_blobs() == {"e" * 64}
    journal.release_submissions(ROW.digest)
    assert journal.needed_blobs() == set()
    assert journal.submissions(ROW.digest, 0, "one", 0)["a"].payload == "e" * 64


def test_figures(journal):
    journal.set_metric(ROW.digest, 0, "loss", None)
    journal.set_metric(ROW.digest, 1, "loss", 0.5)
    journal.add_traffic(ROW.digest, 0, "a", up=5)
    journal.add_traffic(ROW.digest, 0, "a", up=1, down=2)
    assert journal.metrics(ROW.digest) == {0: {"loss": None}, 1: {"loss": 0.5}}
    assert journal.traffic(ROW.digest) == {0: {"a": (6, 2)}}


def test_members_and_requests(journal):
    journal.set_member(ROW.digest, "a", joined=True, at_ms=1)
    journal.set_member(ROW.digest, "a", joined=False, at_ms=2, reason="policy")
    assert journal.members(ROW.digest) == {"a": (False, "policy")}
    journal.request_abort(ROW.digest, "why")
    assert journal.abort_requests() == {ROW.digest: "why"}
    journal.drop_abort_request(ROW.digest)
    assert journal.abort_requests() == {}


def test_faults_of_the_file_are_named(tmp_path):
    (tmp_path / "text").write_text("this is not a database, whatever its name says" * 40)
    with pytest.raises(StoreError, match="text: journal failed: file is not a database"):
        Journal(tmp_path / "text")
    with pytest.raises(StoreError, match="cannot be made: No such file"):
        Journal(tmp_path / "absent" / "j.sqlite")
    later = sqlite3.connect(tmp_path / "later.sqlite")
    later.execute("PRAGMA user_version=99")
    later.close()
    with pytest.raises(StoreError, match="journal of format 99 where 3 is due"):
        Journal(tmp_path / "later.sqlite")


@pytest.mark.parametrize("begun", ["no byte", "a log and no table"])
def test_a_journal_that_is_just_being_made_is_not_one_of_another_version(tmp_path, begun):
    path = tmp_path / "j.sqlite"
    path.touch(mode=0o600)
    if begun != "no byte":
        maker = sqlite3.connect(path)
        maker.execute("PRAGMA journal_mode=WAL")
        maker.close()
    with pytest.raises(StoreError, match="nothing is in it: it is just being made") as caught:
        Journal(path, "read")
    assert "fedsecure coordinator run" in caught.value.hint
    Journal(path, "write").close()
    reader = Journal(path, "read")
    assert reader.runs() == []
    reader.close()
