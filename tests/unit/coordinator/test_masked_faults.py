"""What goes wrong beside the nodes' drop-outs: a hostile vector, a disk that fails, a machine out of threads."""

from __future__ import annotations

import errno
import gc
import threading
import weakref

import numpy as np
import pytest

from fedsecure.errors import StoreError
from fedsecure_coordinator.masking import sessions as sessions_module


def details(office, kind):
    return [n.detail for n in office.notices if n.kind == kind]


def test_a_sum_that_its_contributors_cannot_have_given_ends_the_run_with_that_reason(masked_run, masked_plan):
    run = masked_run()
    digest = run.open(masked_plan())
    begin = run.nodes["b"]._begin

    def hostile(leg, schema, method):
        machine = begin(leg, schema, method)
        for vector in machine._vectors.values():
            vector[:] = np.iinfo(vector.dtype).max // 2
        return machine

    run.nodes["b"]._begin = hostile
    run.pump(digest, lambda: run.ended(digest))
    row = run.ended(digest)
    assert row.phase == "ABORTED"
    assert row.reason.startswith("update: BAD_SUM: stream fedavg.one.x: the sum lies outside")
    assert [d["session"] for d in details(run.office, "session-failed")] == [0, 1]
    assert run.office.journal.masked_sum(digest, 0, "one", 0) is None


def test_a_sum_that_cannot_be_stored_is_kept_until_it_can(masked_run, masked_plan, monkeypatch):
    monkeypatch.setattr(sessions_module, "STORE_SECONDS", 0.05)
    run = masked_run()
    office, failed = run.office, []
    put, add = office.blobs.put, office.journal.add_sum

    def full(data):
        if threading.current_thread().name == "session" and len(failed) < 3:
            failed.append("blob")
            raise StoreError("disk full")
        return put(data)

    def broken(found):
        if len(failed) < 5:
            failed.append("row")
            raise StoreError("disk full")
        add(found)

    monkeypatch.setattr(office.blobs, "put", full)
    monkeypatch.setattr(office.journal, "add_sum", broken)
    digest = run.open(masked_plan(rounds=1))
    run.pump(digest, lambda: run.ended(digest))
    assert run.ended(digest).phase == "COMPLETED"
    assert failed == ["blob"] * 3 + ["row"] * 2
    assert len(details(office, "session")) == 1  # nobody was asked twice for shares


def test_notes_that_cannot_be_written_end_no_session(masked_run, masked_plan, monkeypatch):
    run = masked_run()
    office, note, lost = run.office, run.office.registry.note, []

    def broken(digest, kind, detail):
        if kind == "session-leg":
            lost.append(kind)
            raise StoreError("disk full")
        note(digest, kind, detail)

    monkeypatch.setattr(office.registry, "note", broken)
    digest = run.open(masked_plan(rounds=1))
    run.pump(digest, lambda: run.ended(digest))
    assert (run.ended(digest).phase, len(lost)) == ("COMPLETED", 5)


def test_a_machine_out_of_threads_is_waited_for(masked_run, masked_plan, monkeypatch):
    run = masked_run()
    start, refused = threading.Thread.start, []

    def scarce(thread):
        if thread.name == "session" and len(refused) < 2:
            refused.append(errno.EAGAIN)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    digest = run.open(masked_plan(rounds=1))
    run.pump(digest, lambda: run.ended(digest))
    assert (run.ended(digest).phase, len(refused)) == ("COMPLETED", 2)


def test_a_fault_of_ours_in_a_session_wedges_nothing(masked_run, masked_plan, monkeypatch, caplog):
    run = masked_run()
    office, faults = run.office, []

    def fails(*args):
        faults.append(1)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(sessions_module, "summed_tensors", fails)
    digest = run.open(masked_plan(rounds=1))
    run.pump(digest, lambda: run.ended(digest))
    assert run.ended(digest).phase == "ABORTED"
    assert details(office, "attempt-failed")[0]["reason"] == "ZeroDivisionError: a bug"
    assert len(faults) == 1
    assert "a session failed" in caplog.text


def test_nothing_of_a_session_stays_in_memory(masked_run, masked_plan):
    run = masked_run()
    digest = run.open(masked_plan(rounds=1))
    run.vanish |= dict.fromkeys("abcd", 3)
    run.pump(digest, lambda: len(details(run.office, "session-leg")) == 3)
    session = run.office.sessions._sessions[digest]
    machine = weakref.ref(session._held)
    run.vanish.clear()
    run.pump(digest, lambda: run.ended(digest))
    for thread in run.office.sessions._threads:
        thread.join(60)
    gc.collect()
    assert machine() is None
    assert session.leg("a") is None


@pytest.mark.parametrize("names", ["abcde", "abc"])
def test_the_smallest_cohort_and_one_that_must_stay_whole(masked_run, masked_plan, names):
    """Five of five must contribute by the plan, although four could unmask: with four there is no sum."""
    run = masked_run(names)
    digest = run.open(masked_plan(names, min_nodes=len(names), rounds=1))
    run.vanish[names[-1]] = 2
    run.pump(digest, lambda: details(run.office, "session-failed"))
    (failed,) = details(run.office, "session-failed")[:1]
    assert failed["reason"].startswith(f"TOO_FEW_NODES: {len(names) - 1} nodes")
    run.vanish.clear()
    run.pump(digest, lambda: run.ended(digest))
    assert run.ended(digest).phase == "COMPLETED"
