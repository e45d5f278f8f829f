"""The ledger and the release log: an older or a lost ledger is refused, and re-entered; ``fedsecure node budget``."""

from __future__ import annotations

import builtins
import json
import shutil
from pathlib import Path

import pytest

from fedsecure.cli import run
from fedsecure.errors import PrivacyBudgetExceeded, ReleaseLogError
from fedsecure.privacy.accounting import epsilon, exact_gaussian_epsilon
from fedsecure.privacy.entries import ChargedFor
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.spend import Spend
from fedsecure_node.assemble import open_log
from fedsecure_node.cli.first_steps import check_node
from fedsecure_node.cli.forgetting import forget_log
from fedsecure_node.log.budget import catch_up, check_not_rolled_back, log_entry, restore_ledger
from fedsecure_node.log.chain import CHARGED
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store

RECORDS = tuple(bytes(31) + bytes([n]) for n in range(50))
OTHERS = tuple(bytes(30) + b"\1" + bytes([n]) for n in range(50))
TEN = Spend(10.0, 1.0, 4)


def what(node="hospital-a", noise="csprng"):
    return ChargedFor("ab" * 32, "heart", 0, "update", 0, node, noise, "dp-sgd")


@pytest.fixture
def ledger(settings):
    with Ledger(settings.ledger) as opened:
        yield opened


def pay(ledger, log=None, records=RECORDS, **about):
    entry = ledger.charge(
        ledger.data_set(records), (TEN,), cap=8, delta=1e-5, what=what(**about), epsilon=epsilon
    )  # fmt: skip
    if log is not None:
        log_entry(log, entry)
    return entry


def test_charges_are_records_of_the_log_that_verify(site, ledger, log, capsys):
    entries = [pay(ledger, log), pay(ledger, log)]
    assert [record.kind for record in log.records()] == [CHARGED, CHARGED]
    assert {hash_: each.entry for hash_, each in log.charges().items()} == {entry.hash: entry for entry in entries}
    check_not_rolled_back(ledger, log)
    assert run(["node", "verify-log", "--dir", str(site)]) == 0
    assert "2 records of 0 releases: whole" in capsys.readouterr().out


def test_a_ledger_put_back_to_an_older_copy_is_refused_until_it_is_re_entered(ledger, log, settings, tmp_path):
    pay(ledger, log)
    shutil.copy(ledger.path, tmp_path / "backup.db")
    newer = pay(ledger, log)
    ledger.close()
    shutil.copy(tmp_path / "backup.db", settings.ledger)
    with Ledger(settings.ledger) as old:
        with pytest.raises(PrivacyBudgetExceeded, match="lacks 1 entry .* first in its record 2") as refused:
            check_not_rolled_back(old, log)
        assert refused.value.hint.endswith("fedsecure node budget restore")
        pay(old)  # a daemon would not: and even then, nothing of the other branch is lost
        assert [entry.hash for entry in restore_ledger(old, log)] == [newer.hash]
        check_not_rolled_back(old, log)
        assert old.history(newer.data_set) == (Spend(10.0, 1.0, 12),)


def test_a_lost_ledger_is_not_begun_anew_in_silence(ledger, log, settings):
    entry = pay(ledger, log)
    ledger.close()
    settings.ledger.unlink()
    with Ledger(settings.ledger) as new:
        with pytest.raises(PrivacyBudgetExceeded, match="lacks 1 entry"):
            check_not_rolled_back(new, log)
        restore_ledger(new, log)
        check_not_rolled_back(new, log)
        assert new.history(new.data_set(RECORDS)) == (TEN,) == new.entries()[0].spends
        assert new.entries()[0].ledger == entry.ledger != new.identity


def test_a_ledger_that_is_ahead_is_in_order_and_the_log_catches_up_with_this_nodes_entries(ledger, log):
    pay(ledger, log)
    killed = pay(ledger)  # between ledger and log
    pay(ledger, node="hospital-b")
    check_not_rolled_back(ledger, log)
    assert catch_up(ledger, log, "hospital-a") == 1
    assert killed.hash in log.charges()
    assert catch_up(ledger, log, "hospital-a") == 0
    assert len(log.charges()) == 2


def test_a_second_process_learns_of_what_the_first_one_logged(ledger, log, settings):
    pay(ledger, log)
    with Store(settings.store) as store:
        other = open_log(store, settings)
        assert len(other.charges()) == 1
        pay(ledger, log)
        assert len(other.charges()) == 2


def test_a_record_that_is_no_entry_is_named(log, settings):
    with pytest.raises(ReleaseLogError, match="record 1: holds no entry"):
        log.append(CHARGED, {"counter": 1}, only_if=lambda _: None)
    with Store(settings.store) as store, pytest.raises(ReleaseLogError, match="record 1: holds no entry"):
        open_log(store, settings).charges()


def test_a_log_that_is_forgotten_gives_the_ledger_what_it_still_tells(ledger, log, settings):
    pay(ledger, log)
    pay(ledger, log)
    damaged = pay(ledger, log)
    ledger.close()
    settings.ledger.unlink()
    log_path = settings.store / "releases.jsonl"
    log_path.write_bytes(log_path.read_bytes().replace(damaged.nonce.encode(), b"0" * 32))
    done = forget_log(settings, reason="bits flipped", by="ada")
    assert done.ledger
    with Store(settings.store) as store, Ledger(settings.ledger) as new:
        assert new.history(new.data_set(RECORDS)) == (Spend(10.0, 1.0, 8),)
        anew = open_log(store, settings)
        assert catch_up(new, anew, "hospital-a") == 2  # and the new log knows it from then on
        assert [record.kind for record in anew.records()] == ["forgotten", CHARGED, CHARGED]


def test_where_log_and_ledger_are_lost_it_is_said(site, settings, ledger, log, capsys):
    pay(ledger, log)
    ledger.close()
    shutil.rmtree(settings.store)
    assert run(["node", "forget-log", "--reason", "the disk died", "--dir", str(site)]) == 0
    assert "take what was spent off the cap in policy.toml" in capsys.readouterr().out


def test_node_check_holds_the_ledger_against_the_log(site, settings, ledger, log):
    def finding():
        return next(each for each in check_node(site, None) if each.what == "privacy ledger")

    assert "0 entries" in finding().line
    pay(ledger, log)
    pay(ledger)
    assert "2 entries, among them all" in finding().line
    ledger.close()
    settings.ledger.unlink()
    assert "is gone, though the release log knows 1 entry" in finding().line
    Ledger(settings.ledger).close()
    assert "lacks 1 entry" in finding().line
    assert isinstance(finding().error, PrivacyBudgetExceeded)


def test_the_ledger_lies_in_the_store_or_where_the_settings_say(site):
    assert load_settings(site).ledger == site / "store" / "ledger.db"
    with (site / "node.toml").open("a") as file:
        file.write('\n[privacy]\nledger = "../shared/ledger.db"\n')
    assert load_settings(site).ledger == site / "../shared/ledger.db"


@pytest.fixture
def cli(site, capsys):
    def call(*arguments, code=0):
        assert run(["node", "budget", *arguments, "--dir", str(site)]) == code, capsys.readouterr()
        return capsys.readouterr()

    return call


def test_the_budget_in_words_and_for_machines(cli, ledger, log):
    assert cli().out == "nothing was spent\n"
    pay(ledger, log)
    pay(ledger, log, noise="torch")
    ledger.note_unprotected(ledger.data_set(RECORDS[:10]), what())
    pay(ledger, log, OTHERS)
    ledger.close()
    exact = exact_gaussian_epsilon((2 * TEN.steps) ** 0.5 / TEN.sigma, 1e-5)
    shown = cli()
    assert f"10 records, epsilon {exact:.4g} of 8 at delta 1e-05" in shown.out
    for words in (
        "one history with",
        "2 charges",
        "heart (abababababab, node hospital-a, dp-sgd, csprng noise)",
        "1 charge with noise that can be repeated",
        "1 release of its records without any guarantee",
    ):
        assert words in shown.out
    assert shown.err == ""
    told = json.loads(cli("--json").out)
    first, second = told["budgets"]
    assert (told["counter"], told["lacking"], first["cap"], first["unprotected"]) == (4, 0, 8.0, 1)
    assert first["epsilon"] == pytest.approx(exact, rel=1e-6)
    assert first["left"] == pytest.approx(8 - first["epsilon"])
    assert second["history"] == [{"sigma": 10.0, "q": 1.0, "steps": 4}]


def test_without_a_policy_the_spending_is_still_told(cli, site, ledger):
    pay(ledger)
    (site / "policy.toml").unlink()
    shown = cli()
    assert "no cap is known" in shown.err
    assert "the policy names no cap" in shown.out


def test_a_ledger_that_lacks_entries_says_so_and_is_restored(cli, ledger, log, settings):
    pay(ledger, log)
    ledger.close()
    settings.ledger.unlink()
    assert "lacks 1 entry" in cli().err
    assert not settings.ledger.exists()  # to look makes nothing
    assert "re-entered 1 entry" in cli("restore").out
    shown = cli()
    assert "records not known" in shown.out
    assert shown.err == ""
    assert json.loads(cli("restore", "--json").out) == {"restored": []}


def test_epsilon_over_time_is_drawn(cli, ledger, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pay(ledger)
    pay(ledger)
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        cli("--plot", str(tmp_path / name))
        assert (tmp_path / name).read_bytes().startswith(start)
    assert "name a .png, .svg or .pdf" in cli("--plot", str(Path(tmp_path / "a.txt")), code=3).err


def test_without_matplotlib_the_hint_says_what_to_do(cli, ledger, tmp_path, monkeypatch):
    pay(ledger)
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert "pip install matplotlib" in cli("--plot", str(tmp_path / "a.png"), code=3).err
