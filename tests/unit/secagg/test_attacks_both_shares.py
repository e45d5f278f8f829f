"""A coordinator that wants both shares of one node: by one answer, by two survivor lists, by asking twice."""

from __future__ import annotations

from itertools import product

import pytest
from adversary import Lab, Relay
from adversary_knowledge import Knowledge

from fedsecure.errors import SecAggError
from fedsecure.secagg.v1 import secagg_pb2 as pb


def up_to_vectors(lab, *colluders):
    """A session in which everybody of the cohort has uploaded, and the colluders in it."""
    cast = lab.cast(*colluders)
    return Relay(lab, lab.config(), cast).run(0, 2), [cast[c] for c in colluders]


def without(relay, node):
    return relay.survivors([n for n in relay.who(2) if n != node])


def test_nodes_that_give_both_shares_lose_every_vector():
    """What is at stake: against nodes that check nothing, the adversary of these tests wins."""
    lab = Lab(4)
    cast = lab.cast(*lab.names)
    relay = Relay(lab, lab.config(), cast).run(0, 3)
    for node in lab.names:
        relay.got[node][4] = cast[node].everything()
    knowledge = Knowledge(relay)
    assert all(knowledge.has_both(node) for node in lab.names)
    assert {frozenset({n}) for n in lab.names} <= knowledge.learned_sums()


@pytest.mark.parametrize("dropped", ["", "bea"])
def test_a_node_gives_one_share_of_each_owner(dropped):
    lab = Lab(4)
    relay = Relay(lab, lab.config(), lab.cast()).run(0, 1)
    alive = [n for n in lab.names if n != dropped]
    relay.run(2, 4, alive)
    for node in alive:
        items = pb.UnmaskShares.FromString(relay.got[node][4]).item
        kinds = {item.owner: item.WhichOneof("value") for item in items}
        assert len(items) == len(kinds) == 4
        assert kinds == {n: "mask_sk" if n == dropped else "self_seed" for n in lab.names}
    assert Knowledge(relay).learned_sums() == {frozenset(alive)}


@pytest.mark.parametrize("nodes", [3, 4, 5, 6])
def test_two_survivor_lists_never_both_find_the_threshold(nodes):
    """Every way to divide the honest nodes among two lists, the colluders signing both: one list at most is opened."""
    lab = Lab(nodes)
    few = lab.manifest.threshold.colluders
    opened = [split_lists(lab, way, few) for way in product("ab", repeat=nodes - few)]
    assert max(len(lists) for lists, _ in opened) == 1
    assert all(len(sums) <= 1 for _, sums in opened)
    assert min(len(s) for _, sums in opened for s in sums) >= lab.threshold - few >= 2


def test_one_colluder_more_than_the_cohort_withstands_opens_a_vector():
    """The bound is tight, so the test above can fail."""
    lab = Lab(5)
    ways = [split_lists(lab, way, lab.manifest.threshold.colluders + 1) for way in product("ab", repeat=2)]
    assert max(len(lists) for lists, _ in ways) == 2
    assert any(frozenset({"ada"}) in sums for _, sums in ways)


def split_lists(lab, way, few):
    """Show the full list to the honest nodes marked a in ``way`` and one without ada to the others. Returns the lists
    that were opened and the sums that were learned."""
    lab = Lab(len(lab.names))
    colluders = lab.names[len(lab.names) - few :]
    relay, puppets = up_to_vectors(lab, *colluders)
    lists = {"a": relay.survivors(), "b": without(relay, "ada")}
    signatures = {key: [] for key in lists}
    for node, key in zip(lab.names, way, strict=False):
        if key == "b" and (node == "ada" or len(lab.names) - 1 < lab.threshold):
            with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT" if node == "ada" else "^TOO_FEW_NODES"):
                relay.ask(node, 3, lists["b"])
        else:
            signatures[key].append(relay.ask(node, 3, lists[key]))
    for key, puppet in product(lists, puppets):
        signatures[key].append(puppet.confirm(lists[key]))
    opened = set()
    for node, key in zip(lab.names, way, strict=False):
        if node in relay.aborts:
            continue
        if len(signatures[key]) < lab.threshold:
            with pytest.raises(SecAggError, match="^TOO_FEW_NODES"):
                relay.ask(node, 4, relay.consistency(*signatures[key]))
        else:
            relay.ask(node, 4, relay.consistency(*signatures[key]))
            opened.add(key)
    return opened, Knowledge(relay, puppets).learned_sums()


def test_signatures_over_the_other_list_do_not_count():
    """cyd confirmed the list without ada; it is then shown the signatures over the full list, and mixtures."""
    for mixture in ("others", "mixed"):
        lab = Lab(5)
        relay, puppets = up_to_vectors(lab, "dot", "eve")
        full, short = relay.survivors(), without(relay, "ada")
        others = [relay.ask(n, 3, full) for n in ("ada", "bea")] + [p.confirm(full) for p in puppets]
        mine = [relay.ask("cyd", 3, short)] + [p.confirm(short) for p in puppets]
        shown = others if mixture == "others" else mine + others[:1]
        with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT"):
            relay.ask("cyd", 4, relay.consistency(*shown))
        assert relay.cast["cyd"].state.name == "ABORTED"
        assert Knowledge(relay, puppets).learned_sums() == set()


def test_one_signature_many_times_is_one_signature():
    lab = Lab(5)
    relay, puppets = up_to_vectors(lab, "dot", "eve")
    short = without(relay, "ada")
    mine = relay.ask("bea", 3, short)
    shown = [mine, puppets[0].confirm(short), puppets[1].confirm(short)]
    with pytest.raises(SecAggError, match="^(BAD_SIGNATURE|BAD_TRANSCRIPT|TOO_FEW_NODES)"):
        relay.ask("bea", 4, relay.consistency(*shown, puppets[0].confirm(short)))
    assert Knowledge(relay, puppets).learned_sums() == set()


def test_signatures_of_nodes_outside_the_list_do_not_count():
    """dot colludes and is not in the list that it signs."""
    lab = Lab(5)
    relay, puppets = up_to_vectors(lab, "dot", "eve")
    short = without(relay, "dot")
    signatures = [relay.ask("bea", 3, short), relay.ask("cyd", 3, short), *(p.confirm(short) for p in puppets)]
    with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT: "):
        relay.ask("bea", 4, relay.consistency(*signatures))
    assert Knowledge(relay, puppets).learned_sums() == set()


def test_a_second_survivor_list_in_a_session():
    lab = Lab(5)
    relay, puppets = up_to_vectors(lab, "dot", "eve")
    for node in ("ada", "bea", "cyd"):
        relay.ask(node, 3, relay.survivors())
    with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT"):
        relay.ask("bea", 3, without(relay, "ada"))
    signatures = [relay.got["ada"][3], relay.got["bea"][3], *(p.confirm(relay.survivors()) for p in puppets)]
    with pytest.raises(SecAggError):  # it has left for good, also for the first list
        relay.ask("bea", 4, relay.consistency(*signatures))
    assert relay.cast["bea"].state.name == "ABORTED"
    assert Knowledge(relay, puppets).learned_sums() == set()


def test_a_second_unmask_in_a_session():
    lab = Lab(5)
    relay, puppets = up_to_vectors(lab, "dot", "eve")
    relay.run(3, 4, ["ada", "bea", "cyd", "dot", "eve"])
    only = Knowledge(relay, puppets).learned_sums()
    assert only == {frozenset({"ada", "bea", "cyd"})}
    for leg, message in ((4, relay.consistency()), (3, without(relay, "ada")), (2, relay.inbox("bea"))):
        with pytest.raises(SecAggError, match="^ALREADY_RELEASED: "):
            relay.ask("bea", leg, message)
        assert relay.cast["bea"].state.name == "RELEASED"
    assert Knowledge(relay, puppets).learned_sums() == only


def test_a_list_that_leaves_out_an_uploaded_vector_keeps_it_hidden():
    """ada's vector is in the coordinator's hands, its private key is rebuilt, and its seed is not: still masked."""
    lab = Lab(4)
    relay, puppets = up_to_vectors(lab, "dot")
    short = without(relay, "ada")
    for node in ("bea", "cyd"):
        relay.ask(node, 3, short)
    signatures = relay.consistency(relay.got["bea"][3], relay.got["cyd"][3], puppets[0].confirm(short))
    for node in ("bea", "cyd"):
        relay.ask(node, 4, signatures)
    knowledge = Knowledge(relay, puppets)
    assert knowledge.mask_key(knowledge.advertised("ada").mask_pk, "ada") is not None
    assert knowledge.seed("ada") is None
    assert knowledge.learned_sums() == {frozenset({"bea", "cyd"})}
