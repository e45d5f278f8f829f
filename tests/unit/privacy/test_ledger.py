"""The privacy ledger: it pays before, never past the cap, and for every record all that its data sets spent."""

from __future__ import annotations

import math
import random
import sqlite3
from pathlib import Path

import pytest
from charging import ONE, WHAT, charge, composed, records

from fedsecure.errors import DataError, LocalProtocolError, PrivacyBudgetExceeded, StoreError
from fedsecure.privacy.entries import Entry
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.spend import Spend


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


def test_a_charge_composes_the_whole_history_and_outlives_the_process(ledger: Ledger) -> None:
    data_set = ledger.data_set(records("a", "b"))
    first, second = charge(ledger, data_set, 3), charge(ledger, data_set, 4)
    assert (first.epsilon_before, first.epsilon_after, second.epsilon_before, second.epsilon_after) == (0, 3, 3, 7)
    assert (first.counter, second.counter, ledger.counter) == (1, 2, 2)
    with Ledger(ledger.path) as again:
        assert again.history(data_set) == (Spend(1.0, 1.0, 7),)
        assert again.entries() == (first, second)
        assert again.identity == ledger.identity


def test_spends_of_other_mechanisms_stay_apart(ledger: Ledger) -> None:
    data_set = ledger.data_set(records("a"))
    spends = (Spend(2.0, 0.1, 5), ONE, Spend(2.0, 0.1, 1))
    ledger.charge(data_set, spends, cap=9, delta=1e-5, what=WHAT, epsilon=composed)
    assert ledger.history(data_set) == (ONE, Spend(2.0, 0.1, 6))


def test_the_cap_refuses_and_then_nothing_was_written(ledger: Ledger) -> None:
    data_set = ledger.data_set(records("a"))
    charge(ledger, data_set, 7, cap=10)
    with pytest.raises(PrivacyBudgetExceeded, match="from 7 to 11 at delta 1e-05, past the cap of 10"):
        charge(ledger, data_set, 4, cap=10)
    assert ledger.counter == 1
    assert charge(ledger, data_set, 3, cap=10).epsilon_after == 10  # to the last digit


@pytest.mark.parametrize("nonsense", [math.nan, math.inf])
def test_an_epsilon_that_is_none_pays_for_nothing(ledger: Ledger, nonsense: float) -> None:
    data_set = ledger.data_set(records("a"))
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.charge(data_set, (ONE,), cap=10, delta=1e-5, what=WHAT, epsilon=lambda *_: nonsense)
    assert ledger.counter == 0


def test_an_accountant_that_breaks_leaves_no_trace_and_no_lock(ledger: Ledger) -> None:
    data_set = ledger.data_set(records("a"))
    with pytest.raises(ZeroDivisionError):
        ledger.charge(data_set, (ONE,), cap=10, delta=1e-5, what=WHAT, epsilon=lambda *_: 1 / 0)
    with Ledger(ledger.path) as other:
        assert charge(other, data_set).counter == 1


@pytest.mark.parametrize(
    ("cap", "delta"), [(math.nan, 1e-5), (math.inf, 1e-5), (-1, 1e-5), (1, 0), (1, 1), (1, math.nan)]
)
def test_limits_that_are_none(ledger: Ledger, cap: float, delta: float) -> None:
    data_set = ledger.data_set(records("a"))
    with pytest.raises(ValueError, match="no such limit"):
        ledger.charge(data_set, (ONE,), cap=cap, delta=delta, what=WHAT, epsilon=composed)
    with pytest.raises(ValueError, match="nothing to charge"):
        ledger.charge(data_set, (), cap=1, delta=1e-5, what=WHAT, epsilon=composed)


def test_the_same_records_are_the_same_data_set(ledger: Ledger) -> None:
    names = records("a", "b", "c", "a")
    assert ledger.data_set(names) == ledger.data_set(names[::-1]) != ledger.data_set(names[:3])
    for none in ((), (b"short",)):
        with pytest.raises(DataError, match="32 bytes"):
            ledger.data_set(none)


def test_one_more_record_buys_no_new_budget(ledger: Ledger) -> None:
    old = ledger.data_set(records("a", "b"))
    charge(ledger, old, 6)
    new = ledger.data_set(records("b", "c"))
    assert ledger.history(new) == (Spend(1.0, 1.0, 6),)
    charge(ledger, new, 2)  # and what the new one spends counts for the old one
    assert ledger.history(old) == ledger.history(new) == (Spend(1.0, 1.0, 8),)
    with pytest.raises(PrivacyBudgetExceeded):
        charge(ledger, old, 3, cap=10)


def test_data_sets_that_share_no_record_pay_each_for_itself(ledger: Ledger) -> None:
    one, other = ledger.data_set(records("a", "b")), ledger.data_set(records("c", "d"))
    charge(ledger, one, 6)
    assert ledger.history(other) == ()
    bridge = ledger.data_set(records("b", "c"))  # until a third has records of both
    assert ledger.history(one) == ledger.history(other) == ledger.history(bridge) == (Spend(1.0, 1.0, 6),)
    assert len({row.lineage for row in ledger.data_sets()}) == 1


def test_histories_are_those_of_data_sets_that_hang_together_by_records(ledger: Ledger) -> None:
    chance, spent, sets = random.Random(5), {}, {}
    for _ in range(25):
        names = frozenset(chance.sample(range(90), chance.randint(1, 4)))
        data_set = ledger.data_set(records(*map(str, names)))
        sets[data_set], steps = names, chance.randint(1, 9)
        charge(ledger, data_set, steps)
        spent[data_set] = spent.get(data_set, 0) + steps
    for data_set, names in sets.items():
        reached = set(names)
        while reached < (more := reached.union(*(each for each in sets.values() if each & reached))):
            reached = more
        expected = sum(steps for other, steps in spent.items() if sets[other] <= reached)
        assert ledger.history(data_set) == (Spend(1.0, 1.0, expected),)
    assert 1 < len({row.lineage for row in ledger.data_sets()}) < 25


def test_the_ledger_holds_no_digest_of_a_record(ledger: Ledger) -> None:
    secret = records("a very telling name of a record")
    ledger.data_set(secret)
    ledger.close()
    held = ledger.path.read_bytes()
    assert secret[0] not in held
    assert secret[0][:16] not in held


def test_a_data_set_that_was_never_registered_cannot_pay(ledger: Ledger) -> None:
    for use in (ledger.history, lambda each: charge(ledger, each), lambda each: ledger.note_unprotected(each, WHAT)):
        with pytest.raises(LocalProtocolError, match="never registered"):
            use("0" * 64)


def test_a_clock_that_goes_back_changes_no_order(ledger: Ledger) -> None:
    data_set = ledger.data_set(records("a"))
    first = charge(ledger, data_set)
    with Ledger(ledger.path, clock=lambda: 1_000_000_000) as slow:
        second = charge(slow, data_set)
    assert second.time_ms == 1000 < first.time_ms
    assert [entry.counter for entry in ledger.entries(data_set)] == [1, 2]
    assert second.epsilon_after == 2


def test_a_release_without_a_guarantee_is_noted_for_all_that_share_its_records(ledger: Ledger) -> None:
    data_set, apart = ledger.data_set(records("a")), ledger.data_set(records("z"))
    noted = ledger.note_unprotected(data_set, WHAT)
    assert ledger.unprotected(ledger.data_set(records("a", "b"))) == (noted,)
    assert (ledger.unprotected(apart), ledger.history(data_set)) == ((), ())


def test_entries_can_be_told_of_and_read_back(ledger: Ledger) -> None:
    entry = charge(ledger, ledger.data_set(records("a")))
    assert Entry.from_json(entry.to_json(), "it") == entry
    for field, other in (("spends", [[1.0, 1.0, 0]]), ("epsilon_after", 0.5), ("what", {}), ("counter", "1")):
        with pytest.raises(StoreError, match="it: is not as it was written"):
            Entry.from_json({**entry.to_json(), field: other}, "it")


def test_entries_are_neither_changed_nor_removed(ledger: Ledger) -> None:
    charge(ledger, data_set := ledger.data_set(records("a")), 5)
    with sqlite3.connect(ledger.path) as by_hand:
        for change in ("DELETE FROM entries", "UPDATE entries SET body = '{}'"):
            with pytest.raises(sqlite3.IntegrityError, match="entries are never"):
                by_hand.execute(change)
        by_hand.execute("DROP TRIGGER entries_keep")
        by_hand.execute("UPDATE entries SET body = replace(body, '[[1.0,1.0,5]]', '[[1.0,1.0,1]]')")
    by_hand.close()
    with Ledger(ledger.path) as changed, pytest.raises(StoreError, match="entry 1: is not as it was written"):
        charge(changed, data_set)
    assert charge(ledger, data_set).epsilon_after == 6  # who read it before knows better


def test_an_entry_counts_for_whom_its_hash_names(ledger: Ledger) -> None:
    """A column beside it is as easily changed by hand as it is left out of a hash."""
    data_set, apart = ledger.data_set(records("a")), ledger.data_set(records("z"))
    entry = charge(ledger, data_set, 5)
    with sqlite3.connect(ledger.path) as by_hand:
        by_hand.execute("DROP TRIGGER entries_keep")
        by_hand.execute("UPDATE entries SET data_set = ?", (apart,))
    by_hand.close()
    with Ledger(ledger.path) as changed:
        assert changed.missing([entry.hash]) == set(), "the log has nothing to say"
        assert changed.history(data_set) == (Spend(1.0, 1.0, 5),)
        assert changed.history(apart) == ()
        with pytest.raises(PrivacyBudgetExceeded):
            charge(changed, data_set, 5, cap=9)


def test_what_is_put_back_keeps_its_number_where_it_can(ledger: Ledger, tmp_path: Path) -> None:
    data_set = ledger.data_set(records("a"))
    known = [charge(ledger, data_set, n) for n in (1, 2, 3)]
    with Ledger(tmp_path / "other.db") as other:
        charge(other, other.data_set(records("z")))
        put_back = other.restore(known)
        assert [(entry.counter, entry.spends[0].steps) for entry in put_back] == [(2, 2), (3, 3), (4, 1)]
        assert other.missing(entry.hash for entry in known) == set()
        assert other.restore(known) == []
        assert other.history(data_set) == (Spend(1.0, 1.0, 7),)  # with that of "z": nobody knows what it holds


def test_a_data_set_whose_records_are_not_known_counts_for_all_until_they_are(ledger: Ledger, tmp_path: Path) -> None:
    known = charge(ledger, ledger.data_set(records("a", "b")), 5)
    with Ledger(tmp_path / "new.db") as new:
        new.restore([known])
        apart, overlapping = new.data_set(records("x", "y")), new.data_set(records("b", "c"))
        assert new.history(apart) == new.history(overlapping) == (Spend(1.0, 1.0, 5),)
        assert new.data_set(records("a", "b")) == known.data_set
        assert new.history(apart) == ()
        assert new.history(overlapping) == (Spend(1.0, 1.0, 5),)


def test_many_records_are_registered_at_once(ledger: Ledger) -> None:
    many = [number.to_bytes(32, "big") for number in range(20_000)]
    charge(ledger, ledger.data_set(many), 2)
    assert ledger.history(ledger.data_set([*many[1:], records("new")[0]])) == (Spend(1.0, 1.0, 2),)
    assert [row.records for row in ledger.data_sets()] == [20_000, 20_000]
