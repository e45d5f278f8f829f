"""What a node remembers for good is on its disk: a released sum stays released in whatever process comes next."""

from __future__ import annotations

import shutil

import pytest
from adversary import EXPERIMENT, PURPOSE, Lab, Relay
from adversary_knowledge import Knowledge

from fedsecure.errors import SecAggError
from fedsecure_node.masking.memory import StoredMemory
from fedsecure_node.store.store import Store


@pytest.fixture
def stored(tmp_path):
    """``stored(lab, folder)``: ada remembers in a store in this folder; returns the store, closed in the end."""
    opened = []

    def give(lab, folder):
        opened.append(Store(tmp_path / folder))
        lab.memories["ada"] = StoredMemory(opened[-1].sessions)
        return opened[-1]

    yield give
    for store in opened:
        store.close()


@pytest.mark.parametrize("how", ["closed and opened", "power cut", "two processes"])
def test_a_released_sum_after_a_restart_of_the_memory(stored, tmp_path, how):
    """``power cut``: the files as they lie on the disk the moment the shares are handed out, nothing closed."""
    lab = Lab(4)
    store = stored(lab, "store")
    cast = lab.cast("dot")
    first = Relay(lab, lab.config(), cast).run(0, 3)
    first.ask("ada", 4, first.consistency())
    if how == "closed and opened":
        store.close()
    elif how == "power cut":
        shutil.copytree(tmp_path / "store", tmp_path / "as it lay")
    stored(lab, "as it lay" if how == "power cut" else "store")
    for attempt in (0, 1):
        again = Relay(lab, lab.config(attempt=attempt), lab.cast("dot"))
        with pytest.raises(SecAggError, match="^ALREADY_RELEASED: "):
            again.ask("ada", 0, again.config)
    assert lab.memories["ada"].released(EXPERIMENT, PURPOSE, 1) == first.cast["ada"].transcript3
    assert Knowledge(first, [cast["dot"]]).learned_sums() == set()
    first.run(4, 4, ["bea", "cyd", "dot"])
    assert Knowledge(first, [cast["dot"]]).learned_sums() == {frozenset({"ada", "bea", "cyd"})}


def test_a_begun_round_after_a_restart_of_the_memory(stored):
    lab = Lab(4)
    store = stored(lab, "store")
    lab.node("ada", round=5).answer(0, lab.config(round=5))
    store.close()
    stored(lab, "store")
    with pytest.raises(SecAggError, match="^REPLAYED: "):
        lab.node("ada", round=4).answer(0, lab.config(round=4))
    lab.node("ada", round=5).answer(0, lab.config(round=5))


def test_two_machines_with_one_store_release_once(stored):
    """Both confirmed, in two sessions of one round, each in a process of its own: the store lets the first answer."""
    lab = Lab(4)
    stored(lab, "store")
    cast = lab.cast("dot")
    first = Relay(lab, lab.config(), cast).run(0, 3)
    stored(lab, "store")
    again = lab.cast("dot")
    second = Relay(lab, lab.config(attempt=1), again).run(0, 3)
    second.ask("ada", 4, second.consistency())
    with pytest.raises(SecAggError, match="^ALREADY_RELEASED: "):
        first.ask("ada", 4, first.consistency())
    assert 4 not in first.got["ada"]
