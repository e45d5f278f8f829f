"""A coordinator that says it lost a sum which it has, and sums once more from the same model in the next round: nodes
may compute the same again, so a second sum over other nodes would lay the difference open. Here they do."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations

import pytest
from adversary import Lab, Relay
from adversary_knowledge import Knowledge, learned_sums

from fedsecure.errors import SecAggError
from fedsecure.secagg.machines.memory import MemoryOnly

HONEST = frozenset({"ada", "bea", "cyd"})


def next_round(lab, colluders=(), **changes):
    """The round after the first, from the same model unless ``changes`` says otherwise."""
    about = {"round": 2, **changes}
    cast = {n: lab.puppet(n) if n in colluders else lab.node(n, **about) for n in lab.names}
    changes = {name.replace("state_digest", "global_state_digest"): value for name, value in about.items()}
    return Relay(lab, lab.config(**changes), cast)


def knows(lab, colluders, *relays):
    return learned_sums(*(Knowledge(relay, [relay.cast[c] for c in colluders]) for relay in relays))


@pytest.fixture
def lab():
    return Lab(5)


def summed(lab, colluders):
    return Relay(lab, lab.config(), lab.cast(*colluders)).run()


def test_a_second_sum_of_the_same_model_without_a_node(lab):
    first = summed(lab, colluders := ("dot", "eve"))
    second = next_round(lab, colluders).run(0, 2, ["bea", "cyd", *colluders])
    for node in ("bea", "cyd"):
        with pytest.raises(SecAggError, match="^ALREADY_RELEASED: .* over other nodes than the one of the same model"):
            second.ask(node, 3, second.survivors())
        assert second.cast[node].state.name == "ABORTED"
    assert knows(lab, colluders, first, second) == {HONEST}


def test_the_same_nodes_again(lab):
    first = summed(lab, colluders := ("dot", "eve"))
    second = next_round(lab, colluders).run()
    assert knows(lab, colluders, first, second) == {HONEST}


def test_another_model_may_be_summed_over_other_nodes(lab):
    first = summed(lab, colluders := ("dot", "eve"))
    some = ["bea", "cyd", *colluders]
    second = next_round(lab, colluders, state_digest=bytes(31) + b"\1").run(0, 4, some)
    assert knows(lab, colluders, first, second) == {HONEST, frozenset({"bea", "cyd"})}


def test_an_exchange_without_a_model_may_be_summed_over_other_nodes(lab):
    """Nothing is broadcast, in any round: its sums hold what each node lays open in them."""
    cast = {name: lab.node(name, is_of_model=False) for name in lab.names}
    assert Relay(lab, lab.config(), cast).run().who(4) == list(lab.names)
    cast = {name: lab.node(name, round=2, is_of_model=False) for name in lab.names}
    some = list(lab.names[1:])
    assert Relay(lab, lab.config(round=2), cast).run(0, 4, some).who(4) == some


def test_nodes_that_forget_which_model_they_released_are_told_apart(lab):
    """What is at stake."""
    first = summed(lab, colluders := ("dot", "eve"))
    lab.memories = {name: MemoryOnly() for name in lab.names}
    second = next_round(lab, colluders).run(0, 4, ["bea", "cyd", *colluders])
    assert knows(lab, colluders, first, second) == {HONEST, frozenset({"bea", "cyd"})}


def test_a_second_sum_that_was_confirmed_before_the_first_was_released(lab):
    """Both rounds are open at once; what is remembered is looked at again when shares are about to leave."""
    colluders = ("dot", "eve")
    first = Relay(lab, lab.config(), lab.cast(*colluders)).run(0, 3)
    second = next_round(lab, colluders).run(0, 3, ["bea", "cyd", *colluders])
    first.run(4, 4)
    for node in ("bea", "cyd"):
        with pytest.raises(SecAggError, match="^ALREADY_RELEASED: .* over other nodes"):
            second.ask(node, 4, second.consistency())
    assert knows(lab, colluders, first, second) == {HONEST}


@pytest.mark.parametrize("nodes", [4, 5, 6])
def test_no_two_sums_of_one_model_differ_by_a_node(nodes):
    """Some honest nodes release the first; then the coordinator tries to leave one of them, or another, out."""
    few = Lab(nodes).manifest.threshold.colluders
    honest, made = nodes - few, 0
    for size in range(honest + 1):
        for released in combinations(range(honest), size):
            lab = Lab(nodes)
            colluders = lab.names[honest:]
            first = Relay(lab, lab.config(), lab.cast(*colluders)).run(0, 3)
            for i in released:
                first.ask(lab.names[i], 4, first.consistency())
            second = without(lab, colluders, lab.names[0])
            sums = knows(lab, colluders, first, second)
            assert len(sums) <= 1
            made += len(sums)
    assert made > 0


def without(lab, colluders, left_out):
    """The next round's session among all but one, as far as it comes."""
    relay, rest = next_round(lab, colluders), [n for n in lab.names if n != left_out]
    with suppress(SecAggError):
        relay.run(0, 2, rest)
    for leg in (3, 4):
        for node in rest if relay.who(leg - 1) == rest or leg == 4 else ():
            with suppress(SecAggError):
                relay.ask(node, leg, relay.message(node, leg))
    return relay
