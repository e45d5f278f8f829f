"""What a node remembers of sessions: on the disk before a reply leaves, and there in the next process."""

from __future__ import annotations

import pytest

from fedsecure.errors import SecAggError
from fedsecure.rounds.transitions import MAX_ATTEMPTS
from fedsecure.secagg.machines.memory import MAX_SESSIONS, MOST_SESSIONS, MemoryOnly
from fedsecure_node.masking.memory import StoredMemory
from fedsecure_node.store.sessionbook import Asked
from fedsecure_node.store.store import Store

RUN, OTHER = "a" * 64, "b" * 64
T3 = bytes(range(32))
MODEL, ALL = bytes([9]) * 32, ("hospital-a", "hospital-b", "hospital-c", "hospital-d")


@pytest.fixture
def memory(node):
    return StoredMemory(node.store.sessions)


@pytest.fixture
def anew(node):
    """The memory as another process finds it, while this one has the store open: what is not committed is not there."""
    opened = []

    def open_again():
        opened.append(Store(node.settings.store))
        return StoredMemory(opened[-1].sessions)

    yield open_again
    for store in opened:
        store.close()


def test_every_write_is_synchronous(node):
    assert node.store.database.row("PRAGMA synchronous")[0] == 2, "FULL: the log is synced before a commit returns"
    assert node.store.database.row("PRAGMA journal_mode")[0] == "wal"


def test_begun_again_and_then_forward(memory):
    memory.begin(RUN, "update", 0)
    memory.begin(RUN, "update", 0)
    memory.begin(RUN, "update", 3)
    memory.begin(RUN, "statistics", 0)
    memory.begin(OTHER, "update", 0)


def test_a_lower_round_is_refused_in_the_next_process_too(memory, anew):
    memory.begin(RUN, "update", 3)
    for each in (memory, anew()):
        with pytest.raises(SecAggError, match="^REPLAYED: a session of update in round 3, after round 4"):
            each.begin(RUN, "update", 2)


def test_a_node_begins_what_a_coordinator_needs_and_no_more():
    assert MOST_SESSIONS == MAX_SESSIONS * MAX_ATTEMPTS


@pytest.mark.parametrize("kind", ["stored", "in memory"])
def test_one_session_too_many_of_a_triple(kind, memory):
    memory = memory if kind == "stored" else MemoryOnly()
    for _ in range(MOST_SESSIONS):
        memory.begin(RUN, "update", 1)
    for _ in range(2):
        with pytest.raises(SecAggError, match=rf"^REPLAYED: .* update in round 2, after {MOST_SESSIONS} others"):
            memory.begin(RUN, "update", 1)
    memory.begin(RUN, "statistics", 1)
    memory.begin(OTHER, "update", 1)
    memory.release(RUN, "update", 1, T3, MODEL, ALL)  # a session that was begun in time may end
    memory.begin(RUN, "update", 2)


def test_sessions_of_earlier_processes_count(memory, anew):
    for number in range(MOST_SESSIONS):
        (memory if number % 2 else anew()).begin(RUN, "update", 1)
    for each in (memory, anew()):
        with pytest.raises(SecAggError, match="^REPLAYED"):
            each.begin(RUN, "update", 1)


def test_a_session_that_is_refused_does_not_count(memory):
    memory.begin(RUN, "update", 3)
    for _ in range(MOST_SESSIONS):
        with pytest.raises(SecAggError, match="^REPLAYED"):
            memory.begin(RUN, "update", 2)
    for _ in range(MOST_SESSIONS - 1):
        memory.begin(RUN, "update", 3)


def test_released_once_and_never_begun_again(memory, anew):
    memory.begin(RUN, "update", 0)
    memory.release(RUN, "update", 0, T3, MODEL, ALL)
    for each in (memory, anew()):
        assert each.released(RUN, "update", 0) == T3
        with pytest.raises(SecAggError, match="^ALREADY_RELEASED"):
            each.begin(RUN, "update", 0)
        for transcript in (T3, bytes(32)):
            with pytest.raises(SecAggError, match="^ALREADY_RELEASED"):
                each.release(RUN, "update", 0, transcript, MODEL, ALL)
        assert each.released(RUN, "update", 0) == T3, "the first one stays"
        assert each.released(RUN, "update", 1) is None
        assert each.released(OTHER, "update", 0) is None
        each.begin(RUN, "update", 1)


def test_released_without_having_begun_counts_all_the_same(memory):
    memory.release(RUN, "update", 4, T3, MODEL, ALL)
    with pytest.raises(SecAggError, match="^ALREADY_RELEASED"):
        memory.begin(RUN, "update", 4)
    with pytest.raises(SecAggError, match="^REPLAYED"):
        memory.begin(RUN, "update", 3)


@pytest.mark.parametrize("kind", ["stored", "in memory"])
def test_sums_of_one_model_are_over_the_same_nodes(kind, memory, anew):
    """Also in another round, and as the next process finds it."""
    memory, anew = (memory, anew) if kind == "stored" else ((kept := MemoryOnly()), lambda: kept)
    assert memory.survivors(RUN, "update", MODEL) is None
    memory.release(RUN, "update", 0, T3, MODEL, ALL)
    for each in (memory, anew()):
        assert each.survivors(RUN, "update", MODEL) == ALL
        with pytest.raises(SecAggError, match="^ALREADY_RELEASED: a sum of update in round 2 over other nodes"):
            each.release(RUN, "update", 1, T3, MODEL, ALL[:3])
        assert each.released(RUN, "update", 1) is None, "what was refused is not kept"
    for number, other in enumerate(((OTHER, "update", MODEL), (RUN, "statistics", MODEL), (RUN, "update", T3))):
        assert memory.survivors(*other) is None
        memory.release(*other[:2], 5 + number, T3, other[2], ALL[:3])
    memory.release(RUN, "update", 1, T3, MODEL, ALL)


def test_what_was_asked_for_is_kept_until_it_is_asked_anew(node):
    book, key = node.store.sessions, node.key("statistics")
    assert book.asked(key) == Asked("", b"")
    assert not book.is_masked(key.plan)
    book.ask(key, Asked("c" * 64, T3))
    assert book.asked(key) == Asked("c" * 64, T3)
    assert book.asked(node.key("statistics", attempt=1)) == Asked("", b"")
    assert book.is_masked(key.plan)
    book.ask(key, Asked("", b""))
    assert book.asked(key) == Asked("", b"")
