"""A coordinator that comes again: replays, older rounds, restarts in mid-session, and a retry after a success."""

from __future__ import annotations

from itertools import combinations

import pytest
from adversary import Lab, Relay
from adversary_knowledge import Knowledge, learned_sums

from fedsecure.errors import SecAggError
from fedsecure.secagg.machines.memory import MemoryOnly


def restarted(relay, *names):
    """The same session with these nodes' machines opened anew; what they remember for good they still remember."""
    cast = {n: relay.lab.node(n) if n in names else node for n, node in relay.cast.items()}
    again = Relay(relay.lab, relay.config, cast)
    again.got = {n: dict(answers) for n, answers in relay.got.items()}
    again.sent = {n: dict(messages) for n, messages in relay.sent.items()}
    return again


def test_a_replayed_session():
    """Every message of a finished session once more, to a node that was restarted."""
    lab = Lab(4)
    relay = Relay(lab, lab.config(), lab.cast()).run()
    with pytest.raises(SecAggError, match="^ALREADY_RELEASED: "):
        restarted(relay, "ada").ask("ada", 0, relay.config)


@pytest.mark.parametrize("last", [0, 1, 2, 3])
def test_a_replayed_session_that_did_not_finish(last):
    """A node that was restarted draws new keys: the old lists do not hold them, and the old vector stays hidden."""
    lab = Lab(4)
    cast = lab.cast("dot")
    relay = Relay(lab, lab.config(), cast).run(0, last)
    again = restarted(relay, "ada")
    fresh = again.ask("ada", 0, relay.config)
    assert fresh != relay.got["ada"][0]
    with pytest.raises(SecAggError, match="^BAD_(KEY|TRANSCRIPT): "):
        again.ask("ada", 1, relay.key_list())
    assert learned_sums(Knowledge(relay, [cast["dot"]]), Knowledge(again, [cast["dot"]])) == set()


@pytest.mark.parametrize("leg", [1, 2, 3, 4])
def test_a_node_restarted_in_mid_session(leg):
    """It answers no later leg, and starting over with the same keys in the list gets nothing either."""
    lab = Lab(4)
    cast = lab.cast("dot")
    relay = Relay(lab, lab.config(), cast).run(0, leg - 1)
    again = restarted(relay, "ada")
    with pytest.raises(SecAggError):
        again.ask("ada", leg, relay.message("ada", leg))
    assert again.cast["ada"].state.name == "ABORTED"
    with pytest.raises(SecAggError):
        again.ask("ada", 0, relay.config)
    assert Knowledge(relay, [cast["dot"]]).learned_sums() == set()


def test_an_older_round():
    lab = Lab(4)
    Relay(lab, lab.config(), lab.cast()).run()
    old = lab.node("ada", round=0)
    with pytest.raises(SecAggError, match="^REPLAYED: "):
        old.answer(0, lab.config(round=0))
    assert old.state.name == "ABORTED"


def test_an_older_round_after_one_that_was_only_begun():
    lab = Lab(4)
    lab.node("ada", round=5).answer(0, lab.config(round=5))
    with pytest.raises(SecAggError, match="^REPLAYED: "):
        lab.node("ada", round=4).answer(0, lab.config(round=4))
    lab.node("ada", round=4, purpose="statistics").answer(0, lab.config(round=4, purpose="statistics"))


def test_a_refused_configuration_is_not_remembered():
    """Else a coordinator could wedge a run by naming a far round once."""
    lab = Lab(4)
    with pytest.raises(SecAggError, match="^BAD_CONFIG: "):
        lab.node("ada").answer(0, lab.config(round=10**6))
    assert Knowledge(Relay(lab, lab.config(), lab.cast()).run()).learned_sums() == {frozenset(lab.names)}


def test_a_retry_after_success():
    """ "It failed": another attempt over everybody, or over everybody but ada, whose vector is the difference."""
    lab = Lab(5)
    colluders = ("dot", "eve")
    cast = lab.cast(*colluders)
    first = Relay(lab, lab.config(), cast).run()
    second = Relay(lab, lab.config(attempt=1), lab.cast(*colluders))
    for node in ("ada", "bea", "cyd"):
        with pytest.raises(SecAggError, match="^ALREADY_RELEASED: "):
            second.ask(node, 0, second.config)
    puppets = [cast[c] for c in colluders]
    assert Knowledge(first, puppets).learned_sums() == {frozenset({"ada", "bea", "cyd"})}


def test_nodes_that_forget_what_they_released_are_told_apart():
    """What is at stake: with memories wiped, the second attempt without ada completes and the difference is hers."""
    lab = Lab(5)
    cast = lab.cast("dot", "eve")
    first = Relay(lab, lab.config(), cast).run()
    lab.memories = {name: MemoryOnly() for name in lab.names}
    again = lab.cast("dot", "eve")
    second = Relay(lab, lab.config(attempt=1), again).run(0, 4, ["bea", "cyd", "dot", "eve"])
    sums = learned_sums(Knowledge(first, [cast["dot"], cast["eve"]]), Knowledge(second, [again["dot"], again["eve"]]))
    assert sums == {frozenset({"ada", "bea", "cyd"}), frozenset({"bea", "cyd"})}


@pytest.mark.parametrize("nodes", [3, 4, 5, 6])
def test_no_two_sessions_of_one_round_complete(nodes):
    """The first session is opened by some of the honest nodes only; the others try a second with the colluders."""
    few = Lab(nodes).manifest.threshold.colluders
    honest = nodes - few
    for size in range(honest + 1):
        for released in combinations(range(honest), size):
            lab = Lab(nodes)
            colluders = lab.names[honest:]
            sums = two_sessions(lab, colluders, {lab.names[i] for i in released})
            assert len(sums) <= 1
            assert all(len(s) >= lab.threshold - few for s in sums)


def two_sessions(lab, colluders, released):
    """All sums learned when only ``released`` are asked to unmask the first session."""
    cast = lab.cast(*colluders)
    first = Relay(lab, lab.config(), cast).run(0, 3)
    for node in sorted(released):
        first.ask(node, 4, first.consistency())
    rest = [n for n in lab.names if n not in released]
    again = lab.cast(*colluders)
    second = Relay(lab, lab.config(attempt=1), again)
    if len(rest) < lab.threshold and set(rest) - set(colluders):
        with pytest.raises(SecAggError, match="^TOO_FEW_NODES: "):
            second.run(0, 4, rest)
    else:
        second.run(0, 4, rest)
    first_known = Knowledge(first, [cast[c] for c in colluders])
    return learned_sums(first_known, Knowledge(second, [again[c] for c in colluders]))


@pytest.mark.parametrize("last", [0, 1, 2, 3])
@pytest.mark.parametrize("absent", ["ada", "cyd", "dot"])
def test_a_retry_after_a_failure_is_safe(last, absent):
    """The same vectors under fresh keys, in a smaller session: nothing but that session's sum."""
    lab = Lab(4)
    cast, again = lab.cast("dot"), lab.cast("dot")
    first = Relay(lab, lab.config(), cast).run(0, last)
    present = [n for n in lab.names if n != absent]
    second = Relay(lab, lab.config(attempt=1), again).run(0, 4, present)
    sums = learned_sums(Knowledge(first, [cast["dot"]]), Knowledge(second, [again["dot"]]))
    assert sums == {frozenset(set(present) - {"dot"})}


def test_the_old_machine_cannot_release_after_the_new_one_did():
    """Two machines of one node in one round, both confirmed: what it remembers for good lets one of them answer."""
    lab = Lab(4)
    cast, again = lab.cast("dot"), lab.cast("dot")
    first = Relay(lab, lab.config(), cast).run(0, 3)
    second = Relay(lab, lab.config(attempt=1), again).run()
    for node in ("ada", "bea", "cyd"):
        with pytest.raises(SecAggError, match="^ALREADY_RELEASED: "):
            first.ask(node, 4, first.consistency())
        assert 4 not in first.got[node]
    sums = learned_sums(Knowledge(first, [cast["dot"]]), Knowledge(second, [again["dot"]]))
    assert sums == {frozenset({"ada", "bea", "cyd"})}


def test_a_memory_that_cannot_be_written_keeps_the_shares_back():
    """The note comes before the answer: when it fails, nothing leaves."""

    class Full(MemoryOnly):
        def release(self, *triple):
            raise OSError("no space left on device")

    lab = Lab(4)
    lab.memories["ada"] = Full()
    relay = Relay(lab, lab.config(), lab.cast()).run(0, 3)
    with pytest.raises(OSError, match="no space"):
        relay.ask("ada", 4, relay.consistency())
    assert relay.cast["ada"].state.name != "RELEASED"
    assert 4 not in relay.got["ada"]
