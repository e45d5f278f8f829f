"""Nodes that are killed (kill -9) while they work on private runs: what was made of their records never passes what
their ledgers say, and no ledger passes its cap.

As a rule twenty kills, each at a line of code that is drawn: the same ones however loaded the machine is. With
FEDSECURE_EXHAUSTIVE=1 (``make test-exhaustive``) also two hundred at any time, which take minutes."""

from __future__ import annotations

import json
import os
import random
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from fedsecure.crypto.signatures import generate_identity
from fedsecure.data.dataset import Dataset
from fedsecure.data.export import save_npz
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.privacy.accounting import epsilon
from fedsecure.privacy.costs import count_spend, spends
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.spend import Spend
from fedsecure_node.assemble import open_log
from fedsecure_node.log.budget import check_not_rolled_back
from fedsecure_node.log.releases import fold
from fedsecure_node.settings import NodeSettings
from fedsecure_node.store.store import Store

sys.path.insert(0, str(Path(__file__).parents[3]))
from killed_nodes import SPENT, arrived, left, rounds_of_a_node, start

#: Seconds in which a process opens everything, and every node has made its first contribution, however loaded the
#: machine is.
READY, FIRST = 120.0, 240.0
EXHAUSTIVE = os.environ.get("FEDSECURE_EXHAUSTIVE") == "1"
#: Nodes that are at work at a time, and how often each is killed: as a rule, and exhaustively.
FEW, MANY = (2, 10), (4, 50)
#: So many that by noisy counts no class is left out.
RECORDS = 200
#: What the whole plan fits into; what the institution lowers it to once the run has begun; and how much more it grants
#: whenever that is spent.
WHOLE, CAP, MORE = 100.0, 0.9, 1.3
DELTA = 1e-4
CLASSES = ("a", "b")
#: All records in every step: epsilon has an exact formula, which takes no time.
PLAN = {
    "format": 1,
    "name": "killed",
    "rounds": 1000,
    "task": {"kind": "image", "classes": CLASSES, "shape": [1, 4, 4]},
    "model": {"name": "mlp", "hidden": [4]},
    "method": {"name": "fedavg", "local_steps": 1},
    "privacy": {"kind": "dp-sgd", "sigma": 20.0, "batch": 256, "steps": 2, "count_sigma": 20.0},
    "cohort": {"min_nodes": 1},
}


@pytest.fixture
def victims_of(tmp_path: Path) -> Iterator[Callable[[int], list[Victim]]]:
    """So many nodes, all with records that no other process of this machine works on. None outlives the test."""
    seed, made = zlib.crc32(bytes(tmp_path)), list[Victim]()

    def make(nodes: int) -> list[Victim]:
        made.extend(Victim(make_node(tmp_path / str(index), seed + index)) for index in range(nodes))
        return made

    yield make
    for victim in made:
        victim.node.process.kill()


def make_node(tmp_path: Path, seed: int) -> Path:
    """A node that approved and joined the plan, with all that a coordinator would send."""
    tmp_path.mkdir()
    generate_identity(tmp_path / "identity.key")
    rng = np.random.default_rng(seed)
    y = np.arange(RECORDS, dtype=np.int64) % 2
    save_npz(Dataset(rng.random((RECORDS, 1, 4, 4), dtype=np.float32), y, CLASSES), tmp_path / "records.npz")
    plan = Plan.model_validate_json(json.dumps(PLAN))
    (tmp_path / "plan.json").write_bytes(plan.canonical())
    method = build_method(plan)
    (tmp_path / "broadcast.bin").write_bytes(method.broadcast("round", method.init_server(1)).to_bytes())
    (tmp_path / "uploads").mkdir()
    settings = {
        "format": 1,
        "node": "hospital-a",
        "federation": "heart",
        "coordinator": "localhost:1",
        "store": str(tmp_path / "store"),
        "policy": str(tmp_path / "policy.toml"),
        "identity": str(tmp_path / "identity.key"),
        "data": {"kind": "npz", "path": str(tmp_path / "records.npz")},
    }
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    policy(tmp_path, WHOLE)
    with Store(tmp_path / "store") as store:
        store.plans.record(plan, plan.digest(), "running", 1)
        store.plans.decide(plan.digest(), "approved", by="a person", reason="", now_ms=2)
        store.runs.join(plan.digest(), 3)
    return tmp_path


def policy(folder: Path, cap: float) -> None:
    rules: dict[str, Any] = {
        "format": 1,
        "plans": {"methods": ["fedavg"], "min_nodes": 1, "min_records": 1, "min_records_per_class": 1},
        "privacy": {"epsilon": cap, "delta": DELTA},
    }
    rules["plans"]["max_rounds"] = 1000
    rules["release"] = {"max_bytes_per_run": 2**40}
    (folder / "policy.toml").write_text(tomli_w.dumps(rules))


def plan_of(folder: Path) -> Plan:
    return Plan.model_validate_json((folder / "plan.json").read_bytes())


def spent(folder: Path) -> tuple[Spend, ...]:
    with Ledger(folder / "store" / "ledger.db") as ledger:
        return ledger.history(ledger.data_sets()[0].id)


def check_books(folder: Path, cap: float) -> None:
    """The ledger pays for everything that was begun, and for no more than the cap."""
    plan = plan_of(folder)
    made = Counter(int(line.split()[0]) for line in left(folder, "evidence"))
    with Ledger(folder / "store" / "ledger.db") as ledger:
        entries = ledger.entries()
    paid = Counter(entry.what.round for entry in entries if entry.what.exchange == "round")
    assert all(paid[round_] >= times for round_, times in made.items()), "computed without having paid"
    assert entries[0].what.exchange == "counting"
    assert epsilon(spent(folder), DELTA) <= cap
    cost = spends(plan, "round", 0, RECORDS, (20, 20))
    expected = [count_spend(plan.privacy)] * (len(entries) - sum(paid.values())) + [*cost] * sum(paid.values())
    assert epsilon(spent(folder), DELTA) == pytest.approx(epsilon(expected, DELTA))


class Victim:
    """One node, whose institution lowers its cap once the run has begun and raises it whenever it is spent."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cap, self.budgets = folder, WHOLE, 0

    def start(self, dies_at: int | None = None) -> None:
        self.node = start(self.folder, rounds_of_a_node, dies_at)

    def uploads(self) -> int:
        return len(arrived(self.folder))

    def grant(self, cap: float) -> None:
        self.cap = cap
        policy(self.folder, cap)

    def kill(self) -> None:
        self.ended(self.node.kill())

    def ended(self, how: int) -> None:
        if how == SPENT:
            check_books(self.folder, self.cap)
            one = spends(plan_of(self.folder), "round", 0, RECORDS, (20, 20))
            assert epsilon((*spent(self.folder), *one), DELTA) > self.cap, "it was refused too early"
            self.budgets += 1
            self.grant(self.cap * MORE)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_kills_at_any_line(victims_of: Callable[[int], list[Victim]]) -> None:
    nodes, kills = FEW
    victims, chance = victims_of(nodes), random.Random(5)
    for victim in victims:
        victim.start(dies_at=0)
    for victim in victims:
        victim.node.wait_for(lambda victim=victim: victim.uploads() > 1, FIRST)  # type: ignore[misc]
        victim.kill()
        victim.grant(1.1 * epsilon(spent(victim.folder), DELTA))
    first, second, *_ = map(int, left(victims[0].folder, "lines"))
    for _ in range(kills):
        for victim in victims:
            victim.start(dies_at=chance.randrange(1, 2 * (second - first)))
        for victim in victims:
            victim.ended(victim.node.end(FIRST))
        check_books(victims[0].folder, victims[0].cap)
    check_all(victims, kills // 2)


@pytest.mark.skipif(not EXHAUSTIVE, reason="takes minutes: FEDSECURE_EXHAUSTIVE=1")
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_kills_at_any_time(victims_of: Callable[[int], list[Victim]]) -> None:
    nodes, kills = MANY
    victims, chance, pause = victims_of(nodes), random.Random(5), 0.0
    for kill in range(kills):
        for victim in victims:
            victim.start()
        for victim in victims:
            victim.node.wait_ready(READY)
        began = time.monotonic()
        if kill == 0:  # how long processes take for their first exchange on this machine
            for victim in victims:
                victim.node.wait_for(lambda victim=victim: victim.uploads() > 0, FIRST)  # type: ignore[misc]
            pause = time.monotonic() - began
            began = time.monotonic()
        for after, victim in sorted(((chance.uniform(0, pause), victim) for victim in victims), key=lambda due: due[0]):
            time.sleep(max(0.0, began + after - time.monotonic()))
            victim.kill()
        if kill == 0:
            for victim in victims:
                victim.grant(max(CAP, 1.1 * epsilon(spent(victim.folder), DELTA)))
        if kill % 10 == 0:
            check_books(victims[0].folder, victims[0].cap)
    check_all(victims, kills // 3)


def check_all(victims: list[Victim], least: int) -> None:
    """The books of all, and that there was something to check: ``least`` computations or more."""
    made = Counter[tuple[str, str]]()
    for victim in victims:
        check_books(victim.folder, victim.cap)
        check_releases(victim.folder)
        made.update((victim.folder.name, line) for line in left(victim.folder, "evidence"))
    assert len(made) >= least, "killed before they could compute"
    assert max(made.values()) >= 2, "never killed between paying and keeping"
    assert any(victim.budgets for victim in victims), "no cap was ever reached"


def check_releases(folder: Path) -> None:
    """One release for each round, with the epsilon of the ledger as it was; and a log that the ledger is not behind."""
    settings = NodeSettings.model_validate_json((folder / "settings.json").read_bytes())
    with Store(settings.store) as store, Ledger(settings.ledger) as ledger:
        log = open_log(store, settings)
        log.recover()
        check_not_rolled_back(ledger, log)
        releases = list(fold(log.records()).values())
    labels = [release.body["guarantee"] for release in releases]
    assert {label["label"] for label in labels} == {"dp"}
    epsilons = [label["epsilon"] for label in labels]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] <= epsilon(spent(folder), DELTA)
    rounds = [release.body["round"] for release in releases]
    assert rounds == sorted(set(rounds)), "a round was released twice"
    assert len(arrived(folder)) >= len(rounds) - 1
