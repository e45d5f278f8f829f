"""A coordinator that shows different nodes different sessions: keys, sharers, configurations, with colluders' help."""

from __future__ import annotations

import pytest
from adversary import Lab, Relay
from adversary_knowledge import Knowledge

from fedsecure.crypto.keyschedule import share_key
from fedsecure.crypto.sealedshares import SharePair, seal_shares
from fedsecure.errors import SecAggError
from fedsecure.secagg.v1 import secagg_pb2 as pb

HONEST = ("ada", "bea", "cyd")


def two_faced():
    """Five nodes; dot and eve collude, and dot has a second set of keys in the session."""
    lab = Lab(5)
    cast = lab.cast("dot", "eve")
    relay = Relay(lab, lab.config(), cast).run(0, 0)
    second = lab.puppet("dot")
    other = second.advertise(relay.config)
    return relay, [cast["dot"], cast["eve"], second], other


def with_second(relay, other):
    genuine = [relay.got[n][0] for n in relay.who(0) if n != "dot"]
    return pb.KeyList(
        advertise=sorted((pb.Signed.FromString(m) for m in [*genuine, other]), key=lambda s: s.signer)
    ).SerializeToString()


def test_two_key_sets_of_a_corrupt_node():
    """ada sees dot's first keys, bea and cyd the second: two transcripts, so shares do not open and nobody uploads."""
    relay, puppets, other = two_faced()
    relay.ask("ada", 1, relay.key_list())
    for node in ("bea", "cyd"):
        relay.ask(node, 1, with_second(relay, other))
    for puppet in puppets[:2]:
        relay.ask(puppet.name, 1, relay.key_list())
    puppets[2].deal(with_second(relay, other))
    for node in HONEST:
        with pytest.raises(SecAggError, match="^BAD_SHARE: "):
            relay.ask(node, 2, relay.inbox(node))
        assert relay.cast[node].state.name == "ABORTED"
    assert Knowledge(relay, puppets).learned_sums() == set()


def test_two_key_sets_with_the_shares_of_the_other_side_left_out():
    """Each side is told that the other never shared: both are then fewer than the threshold."""
    relay, puppets, other = two_faced()
    relay.ask("ada", 1, relay.key_list())
    for node in ("bea", "cyd"):
        relay.ask(node, 1, with_second(relay, other))
    for puppet in puppets[:2]:
        relay.ask(puppet.name, 1, relay.key_list())
    relay.got["dot"][1], first = puppets[2].deal(with_second(relay, other)), relay.got["dot"][1]
    with pytest.raises(SecAggError, match="^TOO_FEW_NODES: "):
        relay.ask("bea", 2, relay.inbox("bea", ["bea", "cyd", "dot"]))
    relay.got["dot"][1] = first
    with pytest.raises(SecAggError, match="^TOO_FEW_NODES: "):
        relay.ask("ada", 2, relay.inbox("ada", ["ada", "dot", "eve"]))
    assert Knowledge(relay, puppets).learned_sums() == set()


@pytest.mark.parametrize("left_out", HONEST[1:])
def test_different_first_lists(left_out):
    """ada is shown U1 without one node, everybody else all of it."""
    relay, puppets, _ = two_faced()
    relay.ask("ada", 1, relay.key_list([n for n in relay.who(0) if n != left_out]))
    for node in ("bea", "cyd", "dot", "eve"):
        relay.ask(node, 1, relay.key_list())
    present = [n for n in relay.who(1) if n != left_out]
    with pytest.raises(SecAggError, match="^BAD_SHARE: "):
        relay.ask("ada", 2, relay.inbox("ada", present))
    for node in ("bea", "cyd"):
        with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT: " if node == left_out else "^BAD_SHARE: "):
            relay.ask(node, 2, relay.inbox(node))
    assert Knowledge(relay, puppets).learned_sums() == set()


def test_different_second_lists():
    """ada is told that bea never shared, the others that she did: ada's vector lacks a mask, and no list finds t."""
    relay, puppets, _ = two_faced()
    relay.run(1, 1)
    short = [n for n in relay.lab.names if n != "bea"]
    relay.ask("ada", 2, relay.inbox("ada", short))
    for node in ("bea", "cyd", "dot", "eve"):
        relay.ask(node, 2, relay.inbox(node))
    signatures = {node: relay.ask(node, 3, relay.survivors(short)) for node in ("ada", "cyd")}
    signatures |= {p.name: p.confirm(relay.survivors(short)) for p in puppets[:2]}
    with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT: "):  # ada's T3 has her own U2 in it
        relay.ask("ada", 4, relay.consistency(*signatures.values()))
    with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT: "):
        relay.ask("cyd", 4, relay.consistency(*signatures.values()))
    assert Knowledge(relay, puppets).learned_sums() == set()


@pytest.mark.parametrize("leg", [2, 3])
def test_a_node_is_left_out_of_a_list(leg):
    """It is to answer a list that it is not in: its vector would be nobody's, or its shares those of strangers."""
    relay, puppets, _ = two_faced()
    relay.run(1, leg - 1)
    others = [n for n in relay.lab.names if n != "ada"]
    message = relay.inbox("ada", others) if leg == 2 else relay.survivors(others)
    with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT: "):
        relay.ask("ada", leg, message)
    assert relay.cast["ada"].state.name == "ABORTED"
    assert Knowledge(relay, puppets).learned_sums() == set()


@pytest.mark.parametrize("field", ["coordinator_nonce", "deadline_unix_ms", "attempt"])
def test_different_configurations(field):
    """Fields that a node has no opinion of, different for ada: no other node's keys are of her session."""
    lab = Lab(4)
    cast = lab.cast("dot")
    value = {"coordinator_nonce": bytes(32), "deadline_unix_ms": lab.now + 59_000, "attempt": 1}[field]
    common = lab.config()
    message = pb.SessionConfig.FromString(common)
    setattr(message, field, value)
    special = message.SerializeToString(deterministic=True)
    relay = Relay(lab, common, cast)
    for node in lab.names:
        relay.ask(node, 0, special if node == "ada" else common)
    for node in ("ada", "bea"):
        with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT: "):
            relay.ask(node, 1, relay.key_list())
        assert relay.cast[node].state.name == "ABORTED"
    assert Knowledge(relay, [cast["dot"]]).learned_sums() == set()


@pytest.mark.parametrize("place", ["transcript3 of another", "vector digest", "own digest"])
def test_different_vector_digests(place):
    """Survivors that name another vector than the one that was sent."""
    relay, puppets, _ = two_faced()
    relay.run(1, 2)
    if place == "own digest":
        with pytest.raises(SecAggError, match="^BAD_(VECTOR|TRANSCRIPT): "):
            relay.ask("ada", 3, relay.survivors(ada=bytes(32)))
        return
    for node in HONEST:
        special = relay.survivors(eve=bytes(32)) if node == "ada" else relay.survivors()
        relay.ask(node, 3, special)
    signatures = [relay.got[n][3] for n in HONEST] + [p.confirm(relay.survivors()) for p in puppets[:2]]
    with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT: "):
        relay.ask("ada", 4, relay.consistency(*signatures))
    assert Knowledge(relay, puppets).learned_sums() == set()


def test_shares_of_another_index():
    """A colluder seals for ada the shares that are bea's: given back as ada's, they would spoil what they rebuild."""
    relay, puppets, _ = two_faced()
    relay.run(1, 1)
    eve = puppets[1]
    key = share_key(eve.share.exchange(eve.u1["ada"].share_pk, "ada"), eve.t1, "eve", "ada")
    held = SharePair(relay.lab.manifest.index("bea"), eve.held["eve"].mask_share, eve.held["eve"].seed_share)
    sealed = seal_shares(key, held, transcript=eve.t1, sender="eve", receiver="ada")
    message = pb.Inbox.FromString(relay.inbox("ada"))
    for item in getattr(message, "in"):
        if getattr(item, "from") == "eve":
            item.ct = sealed
    with pytest.raises(SecAggError, match="^BAD_SHARE: .* of index 2, not 1"):
        relay.ask("ada", 2, message.SerializeToString())
    assert Knowledge(relay, puppets).learned_sums() == set()


@pytest.mark.parametrize("change", ["flipped", "from another", "swapped names", "left out", "twice", "not for me"])
def test_an_inbox_that_was_changed(change):
    relay, puppets, _ = two_faced()
    relay.run(1, 1)
    message = pb.Inbox.FromString(relay.inbox("ada"))
    items = getattr(message, "in")
    if change == "flipped":
        items[0].ct = bytes([items[0].ct[0] ^ 1]) + items[0].ct[1:]
    elif change == "from another":
        items[0].ct = items[1].ct
    elif change == "swapped names":
        first, second = getattr(items[0], "from"), getattr(items[1], "from")
        items[0].MergeFrom(pb.ShareIn(**{"from": second}))
        items[1].MergeFrom(pb.ShareIn(**{"from": first}))
    elif change == "left out":
        del items[0]
    elif change == "twice":
        items.add().CopyFrom(items[0])
    else:
        items[0].CopyFrom(getattr(pb.Inbox.FromString(relay.inbox("cyd")), "in")[1])
    with pytest.raises(SecAggError, match="^BAD_(SHARE|TRANSCRIPT): "):
        relay.ask("ada", 2, message.SerializeToString())
    assert relay.cast["ada"].state.name == "ABORTED"
    assert Knowledge(relay, puppets).learned_sums() == set()


def isolated(lab, colluders):
    """ada is told that nobody shared but bea, the colluders and as few more as she insists on; the others are told
    that everybody did, and that bea then vanished. Were ada's peers all colluders or bea, whose key is rebuilt, and
    her seed rebuilt as a survivor's, her vector would be bare. Returns what is learned."""
    cast = lab.cast(*colluders)
    puppets = [cast[c] for c in colluders]
    relay = Relay(lab, lab.config(), cast).run(0, 1)
    more = [n for n in lab.names if n not in {"ada", "bea", *colluders}]
    peers = ["ada", "bea", *colluders, *more][: max(lab.threshold, 2 + len(colluders))]
    relay.ask("ada", 2, relay.inbox("ada", peers))
    for node in lab.names[1:]:
        relay.ask(node, 2, relay.inbox(node))
    survivors = relay.survivors([n for n in lab.names if n != "bea"])
    signatures = [relay.ask(node, 3, survivors) for node in more] + [p.confirm(survivors) for p in puppets]
    refused = []
    for node in more:
        try:
            relay.ask(node, 4, relay.consistency(*signatures))
        except SecAggError as error:
            refused.append(str(error).partition(":")[0])
    for puppet in puppets:
        relay.got[puppet.name][4] = puppet.unmask(b"", [n for n in lab.names if n != "bea"])
    return Knowledge(relay, puppets).learned_sums(), set(refused)


@pytest.mark.parametrize("nodes", [4, 5, 6, 7])
def test_a_node_cannot_be_isolated(nodes):
    lab = Lab(nodes)
    sums, refused = isolated(lab, lab.names[nodes - lab.manifest.threshold.colluders :])
    assert sums == set()
    assert refused <= {"TOO_FEW_NODES"}


def test_with_one_colluder_more_a_node_is_isolated():
    """Seven nodes withstand two: the bound is tight."""
    lab = Lab(7)
    assert lab.manifest.threshold.colluders == 2
    sums, refused = isolated(lab, lab.names[4:])
    assert frozenset({"ada"}) in sums
    assert not refused
