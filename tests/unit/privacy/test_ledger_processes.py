"""The ledger between processes: they cannot both spend, kill -9 never under-counts, and a data set has one daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from charging import charge, records

from fedsecure.errors import LocalProtocolError
from fedsecure.privacy.ledger import Ledger

CHARGING = str(Path(__file__).with_name("charging.py"))
KILLS = 100


def begun(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, CHARGING, *words], stdout=subprocess.PIPE, text=True)


def test_kill_9_at_any_moment_never_under_counts(tmp_path: Path) -> None:
    ledger, acknowledged = tmp_path / "ledger.db", tmp_path / "acknowledged"
    with begun("kill", str(ledger), str(acknowledged), str(KILLS), "7") as killer:
        told = json.loads(killer.communicate(timeout=240)[0])
    assert told["kills"] >= KILLS
    assert told["inside"] > 0  # some died with a transaction half on the disk
    assert told["faults"] == 0
    with Ledger(ledger) as left:
        held = left.entries()
        paid = acknowledged.read_text().split()
        assert set(paid) <= {entry.hash for entry in held}
        assert [entry.counter for entry in held] == list(range(1, len(held) + 1))
        assert len(paid) >= told["awaited"] > 0  # they did work
        assert left.history(left.data_set(records("a", "b")))[0].steps == len(held)


def test_processes_that_charge_at_once_pay_the_cap_once(tmp_path: Path) -> None:
    ledger, gate = tmp_path / "ledger.db", tmp_path / "go"
    spenders = [begun("charge", str(ledger), "40", str(gate)) for _ in range(3)]
    gate.touch()
    paid = [int(each.communicate(timeout=120)[0]) for each in spenders]
    assert sum(paid) == 40
    with Ledger(ledger) as left:
        assert [entry.epsilon_after for entry in left.entries()] == list(range(1, 41))


def test_a_second_daemon_on_a_data_set_is_refused_whatever_its_ledger(tmp_path: Path) -> None:
    tag = os.urandom(6).hex()  # the whole machine knows which data sets are worked on
    a, b, c = (f"{name} {tag}" for name in "abc")
    with begun("hold", str(tmp_path / "ledger.db"), a, b) as daemon:
        try:
            assert daemon.stdout is not None
            assert daemon.stdout.readline() == "held\n"
            for name in ("ledger.db", "another.db") if sys.platform == "linux" else ("ledger.db",):
                with Ledger(tmp_path / name) as ledger:
                    taken = ledger.lease(ledger.data_set(records(b, a)))
                    with pytest.raises(LocalProtocolError, match="another daemon .*computes on it"), taken:
                        pass
                    with ledger.lease(ledger.data_set(records(c))):
                        pass
        finally:
            daemon.kill()
    with Ledger(tmp_path / "another.db") as ledger, ledger.lease(ledger.data_set(records(a, b))):
        charge(ledger, ledger.data_set(records(a, b)))  # the system freed it
    with Ledger(tmp_path / "ledger.db") as ledger, ledger.lease(ledger.data_set(records(a, b))):
        pass
