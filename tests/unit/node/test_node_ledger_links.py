"""Which data sets share one history: told in the release log, so that a ledger in which it was changed is found out."""

from __future__ import annotations

import json
import sqlite3

import pytest

from fedsecure.cli import run
from fedsecure.errors import PrivacyBudgetExceeded, ReleaseLogError
from fedsecure.privacy.accounting import epsilon
from fedsecure.privacy.entries import ChargedFor
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.spend import Spend
from fedsecure_node.cli.first_steps import check_node
from fedsecure_node.cli.forgetting import forget_log
from fedsecure_node.log.budget import check_not_rolled_back, log_entry, restore_ledger
from fedsecure_node.log.chain import LINKED
from fedsecure_node.spending.purse import Purse

TEN = Spend(10.0, 1.0, 4)
#: The first and last share no record; the one between shares one with each.
FIRST, BRIDGE, LAST = (tuple(bytes(31) + bytes([n]) for n in range(at, at + 11)) for at in (0, 10, 20))
APART = tuple(bytes(30) + b"\1" + bytes([n]) for n in range(5))


@pytest.fixture
def process(settings, log, machine):
    """A function that stands for the node's next process: it ends the one before, checks at start, and reads data
    sets."""
    opened = []

    def start(*data_sets, check=True):
        for purse in opened:
            purse.close()
        purse = Purse(settings.ledger, log, node_id="hospital-a")
        opened.append(purse)
        if check:
            purse.check()
        for records in data_sets:
            purse.hold(records)
        return purse

    yield start
    for purse in opened:
        purse.close()


@pytest.fixture
def spent(process, log):
    """Ids of the first data set, which spent, of the bridge, and of the last, which knows of it by the bridge alone."""
    purse = process(FIRST)
    ids = [purse.hold(FIRST)]
    what = ChargedFor("ab" * 32, "heart", 0, "update", 0, "hospital-a", "csprng", "dp-sgd")
    log_entry(log, purse.ledger().charge(ids[0], (TEN,), cap=8, delta=1e-5, what=what, epsilon=epsilon))
    ids += [purse.hold(BRIDGE), purse.hold(LAST)]
    assert purse.ledger().history(ids[2]) == (TEN,)
    purse.close()
    return ids


def edit(settings, sql, *values):
    """Change the ledger's file by hand."""
    with sqlite3.connect(settings.ledger, isolation_level=None) as connection:
        assert connection.execute(sql, values).rowcount, "the test changes nothing"
    connection.close()


def edits(ids):
    """Ways to part the last data set, or one that is still to come, from what the first spent."""
    first, bridge, last = ids
    return {
        "parted": ("UPDATE data_sets SET lineage = 99 WHERE id = ?", last),
        "without the bridge": ("UPDATE data_sets SET lineage = 98 WHERE id = ?", bridge),
        "not there": ("DELETE FROM data_sets WHERE id = ?", bridge),
        "fewer records": ("DELETE FROM records WHERE data_set = ?", first),
        "records of another": ("UPDATE records SET data_set = ? WHERE data_set = ?", last, first),
        "another key": ("UPDATE meta SET value = zeroblob(32) WHERE key = 'key'",),
    }


WAYS = tuple(edits(("", "", "")))


@pytest.mark.parametrize("way", WAYS)
def test_a_changed_link_is_found_at_start_and_by_every_verb_and_mended(way, spent, site, settings, process, capsys):
    edit(settings, *edits(spent)[way])
    with pytest.raises(PrivacyBudgetExceeded, match="data set .* changed by hand, or is another one") as refused:
        process()
    assert "fedsecure node budget restore" in refused.value.hint
    assert run(["node", "verify-log", "--dir", str(site)]) == PrivacyBudgetExceeded.exit_code
    assert "changed by hand" in capsys.readouterr().err
    checked = next(each for each in check_node(site, None) if each.what == "privacy ledger")
    assert isinstance(checked.error, PrivacyBudgetExceeded)
    assert run(["node", "budget", "--dir", str(site), "--json"]) == 0
    assert "changed by hand" in json.loads(capsys.readouterr().out)["changed"]
    assert run(["node", "budget", "restore", "--dir", str(site)]) == 0
    changed = (*LAST[1:], *APART)  # a data set that was changed meanwhile still knows
    purse = process(LAST, changed)
    for records in (LAST, changed):
        assert purse.ledger().history(purse.hold(records)) == (TEN,)
    capsys.readouterr()
    assert run(["node", "verify-log", "--dir", str(site)]) == 0
    assert "privacy ledger: 1 entry, among them all that the log knows" in capsys.readouterr().out


def test_the_log_is_told_once_and_only_of_what_it_does_not_know(spent, log, process):
    def told():
        return [set(record.body["data_sets"]) for record in log.records() if record.kind == LINKED]

    first, _, last = spent
    assert told()[0] == {first}
    assert [found for found in told() if last in found] == [{last, told()[-1].difference({last}).pop()}]
    before = len(told())
    process(FIRST, LAST, BRIDGE)
    process(LAST)
    assert len(told()) == before
    apart = process(APART).hold(APART)
    assert told()[before:] == [{apart}]


def test_two_histories_that_another_node_joins_are_told_with_the_next_charge(spent, log, process, settings):
    purse = process(APART)
    apart = purse.hold(APART)
    with Ledger(settings.ledger) as other:
        other.data_set((APART[0], FIRST[0]))
    assert log.links().root(apart) != log.links().root(spent[0])
    purse._check_links()
    assert log.links().root(apart) == log.links().root(spent[0])


def test_while_a_daemon_runs_a_parted_data_set_pays_for_nothing(spent, process, settings, log):
    purse = process(LAST)
    edit(settings, *edits(spent)["parted"])
    with pytest.raises(PrivacyBudgetExceeded, match="no longer shares the history"):
        check_not_rolled_back(purse.ledger(), log)
    process(check=False)
    edit(settings, *edits(spent)["fewer records"])
    with pytest.raises(PrivacyBudgetExceeded):  # before the changed one is charged with nothing behind it
        process((*FIRST[:10], *APART), check=False)


def test_links_that_the_file_lost_are_made_again_when_the_records_are_read(spent, settings):
    edit(settings, *edits(spent)["without the bridge"])
    with Ledger(settings.ledger) as ledger:
        assert ledger.history(ledger.data_set(BRIDGE)) == (TEN,)


def test_a_data_set_that_was_slipped_in_is_linked_when_it_is_read(spent, settings, process):
    from fedsecure.privacy.datasets import data_set_id

    changed = (*FIRST[:10], *APART)
    edit(settings, "INSERT INTO data_sets VALUES (?, 77, 1, 15, 0)", data_set_id(changed))
    purse = process(check=False)
    assert purse.ledger().history(purse.ledger().data_set(changed)) == (TEN,)


def test_a_lost_ledger_is_put_back_with_its_links(spent, settings, log, process):
    settings.ledger.unlink()
    with Ledger(settings.ledger) as ledger:
        restore_ledger(ledger, log)
        assert len({row.lineage for row in ledger.data_sets()}) == 1
        assert ledger.history(ledger.data_set(APART)) == (TEN,), "until their records are read, they count for all"
    purse = process(FIRST, BRIDGE, LAST)
    assert purse.ledger().history(purse.hold(APART)) == ()
    assert purse.ledger().history(purse.hold(LAST)) == (TEN,)
    process(LAST)


def test_a_forgotten_log_gives_its_links_to_the_ledger(spent, settings, log):
    edit(settings, *edits(spent)["parted"])
    path = settings.store / "releases.jsonl"
    path.write_bytes(path.read_bytes() + b"{}\n")
    forget_log(settings, reason="a stray byte", by="ada")
    with Ledger(settings.ledger) as ledger:
        assert ledger.history(spent[2]) == (TEN,)


def test_before_anything_was_spent_a_ledger_may_go(process, settings, log):
    process(FIRST)
    process()
    settings.ledger.unlink()
    purse = process(BRIDGE)
    assert purse.ledger().history(purse.hold(BRIDGE)) == ()
    process(BRIDGE)


@pytest.mark.parametrize("body", [{}, {"data_sets": {}}, {"data_sets": ["a"]}, {"data_sets": {"a": 1}}])
def test_a_record_that_tells_of_no_data_sets_is_named(body, log):
    with pytest.raises(ReleaseLogError, match="record 1: holds no data sets"):
        log.append(LINKED, body, only_if=lambda _: None)
