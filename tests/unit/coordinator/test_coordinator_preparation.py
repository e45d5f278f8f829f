"""Taking up runs: off the serving path, one that is too large or not wanted any more never begins."""

from __future__ import annotations

import threading

import pytest

from fedsecure.errors import ConfigError, WireError
from fedsecure_coordinator.runs.preparation import check_fits, memory_needed, physical_memory
from fedsecure_coordinator.store.journal import RunRow


def never_gone():
    return False


@pytest.fixture
def stuck(toy):
    """A method whose first state takes until ``go`` is set; ``begun`` says that it is being made."""

    class Stuck(toy.method):
        begun, go = threading.Event(), threading.Event()

        def init_server(self, seed):
            self.begun.set()
            assert self.go.wait(60)
            return super().init_server(seed)

    return Stuck()


def add(office, plan):
    office.journal.add_run(RunRow(plan.digest(), plan.name, plan.canonical(), office.clock.now))
    return plan.digest()


def test_an_abort_request_comes_before_preparation(open_office, toy, stuck):
    office = open_office(stuck)
    digest = add(office, toy.plan())
    office.journal.request_abort(digest, "absurd")
    office.preparer.take_up()
    assert not stuck.begun.is_set()
    assert office.registry.ended()[digest].reason == "operator: absurd"
    assert office.journal.abort_requests() == {}


def test_known_runs_are_served_while_another_is_prepared_and_that_one_can_be_ended(open_office, toy, stuck):
    first = open_office()
    known = first.gather(toy.plan())
    office = open_office(stuck)
    waiting = add(office, toy.plan(name="absurd"))
    thread = threading.Thread(target=office.preparer.take_up, daemon=True)
    thread.start()
    assert stuck.begun.wait(60)
    assert [row.digest for row, _ in office.desk.offers("a")] == [known]
    assert office.desk.next_work("a", [waiting, known], 5, never_gone).slot.digest == known
    assert office.desk.next_work("a", [waiting], 0, never_gone) is None
    with pytest.raises(WireError, match="is being prepared"):
        office.desk.join("a", waiting)
    office.journal.request_abort(waiting, "a mistake")
    office.registry.take_abort_requests()
    assert office.registry.ended()[waiting].reason == "operator: a mistake"
    stuck.go.set()
    thread.join(60)
    assert office.registry.run(waiting) is None
    assert next(r for r in office.journal.runs() if r.digest == waiting).phase == "ABORTED"


def test_a_first_state_survives_pruning_before_its_run_is_open(open_office, toy):
    office = open_office()
    put = office.blobs.put

    def put_then_prune(data):
        digest = put(data)
        office.registry.prune()
        return digest

    office.blobs.put = put_then_prune
    digest = office.submit(toy.plan())
    assert office.blobs.has(office.registry.run(digest).row.server)


def test_a_request_for_a_run_from_before_a_restart_keeps_where_it_was(open_office, toy):
    digest = open_office().gather(toy.plan())
    office = open_office()
    office.journal.request_abort(digest, "enough")
    office.preparer.take_up()
    row = office.registry.ended()[digest]
    assert (row.phase, row.reason, row.broadcast) == ("ABORTED", "operator: enough", "")


def test_a_plan_that_does_not_fit_in_memory_ends_unbuilt(open_office, toy, stuck):
    office = open_office(stuck, memory=1000)
    digest = add(office, toy.plan())
    office.preparer.take_up()
    assert not stuck.begun.is_set()
    assert "of memory (this machine has 1,000)" in office.registry.ended()[digest].reason


def test_what_a_run_needs(toy):
    plan = toy.plan()
    assert physical_memory() > 1 << 28
    check_fits(plan, memory_needed(plan))
    with pytest.raises(ConfigError, match="plan sum: its run needs"):
        check_fits(plan, memory_needed(plan) - 1)
