"""A coordinator that changes keys: swapped, invented, repeated, stale, or different ones for different nodes."""

from __future__ import annotations

import pytest
from adversary import Lab, Relay, new_identity
from adversary_knowledge import Knowledge
from adversary_puppet import Puppet, signed

from fedsecure.crypto.agreement import AgreementKey
from fedsecure.errors import SecAggError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.v1 import secagg_pb2 as pb


def opened(colluders=("dot",), nodes=4):
    """A session whose nodes have advertised, and the adversary's puppets in it."""
    lab = Lab(nodes)
    cast = lab.cast(*colluders)
    return Relay(lab, lab.config(), cast).run(0, 0), [cast[c] for c in colluders]


def listed(*advertised):
    return pb.KeyList(advertise=[pb.Signed.FromString(a) for a in advertised]).SerializeToString()


def swapped(relay, **replaced):
    """The key list with the messages of some nodes replaced."""
    return listed(*(replaced.get(n, relay.got[n][0]) for n in relay.who(0)))


def payload_of(message, **changes):
    payload = pb.Advertise.FromString(pb.Signed.FromString(message).payload)
    for name, value in changes.items():
        setattr(payload, name, value)
    return payload.SerializeToString(deterministic=True)


def resigned(message, **changes):
    """``message`` with its payload replaced and the signature as it was, or with another signature or signer."""
    out = pb.Signed.FromString(message)
    for name, value in changes.items():
        setattr(out, name, value)
    return out.SerializeToString(deterministic=True)


def test_a_node_that_checks_no_signature_loses_its_vector_to_swapped_keys():
    """What is at stake: ada shares with keys that are all the coordinator's."""
    lab = Lab(4)
    fakes = {n: Puppet(lab, n, identity=new_identity()) for n in lab.names[1:]}
    relay = Relay(lab, lab.config(), {"ada": lab.puppet("ada"), **fakes}).run(0, 2)
    assert frozenset({"ada"}) in Knowledge(relay, fakes.values()).learned_sums()


def test_the_same_swap_gets_nothing_from_a_node():
    lab = Lab(4)
    fakes = {n: Puppet(lab, n, identity=new_identity()) for n in lab.names[1:]}
    relay = Relay(lab, lab.config(), {"ada": lab.node("ada"), **fakes}).run(0, 0)
    refused(relay, "ada", relay.key_list(), "BAD_SIGNATURE")


def refused(relay, node, key_list, code, puppets=()):
    """``node`` aborts with ``code``, gave no shares, answers nothing more, and nothing is learned."""
    with pytest.raises(SecAggError, match=f"^{code}: ") as caught:
        relay.ask(node, 1, key_list)
    assert str(caught.value).count("\n") == 0
    assert relay.cast[node].state.name == "ABORTED"
    assert 1 not in relay.got[node]
    with pytest.raises(SecAggError):
        relay.ask(node, 1, relay.key_list())
    assert Knowledge(relay, puppets).learned_sums() == set()


@pytest.mark.parametrize("signer", ["stranger", "colluder", "colluder by name", "unchanged", "empty", "zeros", "short"])
def test_swap_the_key_of_a_node(signer):
    relay, puppets = opened()
    mine = payload_of(relay.got["bea"][0], mask_pk=AgreementKey.generate().public)
    genuine = relay.got["bea"][0]
    forged = {
        "stranger": signed(new_identity(), "advertise", mine, "bea"),
        "colluder": signed(puppets[0].identity, "advertise", mine, "bea"),
        "colluder by name": signed(puppets[0].identity, "advertise", mine, "dot"),
        "unchanged": resigned(genuine, payload=mine),
        "empty": resigned(genuine, payload=mine, signature=b""),
        "zeros": resigned(genuine, payload=mine, signature=bytes(64)),
        "short": resigned(genuine, payload=mine, signature=bytes(63)),
    }[signer]
    code = "BAD_KEY" if signer == "colluder by name" else "BAD_SIGNATURE"
    refused(relay, "ada", swapped(relay, bea=forged), code, puppets)


@pytest.mark.parametrize("label", ["masked-done", "consistency", "cohort", "config"])
def test_a_signature_for_another_purpose_is_none(label):
    """A colluder signs as bea would sign something else; and bea's own signature of another message."""
    relay, puppets = opened()
    payload = pb.Signed.FromString(relay.got["bea"][0]).payload
    forged = signed(relay.lab.identities["bea"], label, payload, "bea")
    refused(relay, "ada", swapped(relay, bea=forged), "BAD_SIGNATURE", puppets)


def test_a_node_is_shown_other_keys_as_its_own():
    """Also such as it signed itself, in a session before or with a changed signer."""
    for fake in ("earlier", "colluder's"):
        relay, puppets = opened()
        stale = Relay(relay.lab, relay.lab.config(), {"ada": relay.lab.node("ada")}).run(0, 0).got["ada"][0]
        forged = {"earlier": stale, "colluder's": resigned(relay.got["dot"][0], signer="ada")}[fake]
        refused(relay, "ada", swapped(relay, ada=forged), "BAD_[A-Z]+", puppets)


def test_a_node_is_left_out_of_its_own_session():
    relay, puppets = opened()
    refused(relay, "ada", relay.key_list(["bea", "cyd", "dot"]), "BAD_TRANSCRIPT", puppets)


def test_keys_of_an_earlier_session():
    """The genuine Advertise of bea, of a session with another configuration."""
    relay, puppets = opened()
    earlier = Relay(relay.lab, relay.lab.config(attempt=7), {"bea": relay.lab.puppet("bea")}).run(0, 0)
    refused(relay, "ada", swapped(relay, bea=earlier.got["bea"][0]), "BAD_TRANSCRIPT", puppets)


def test_sybils():
    """A node that is in no manifest, by a key of its own and by a member's."""
    for fake in ("own key", "colluder's key", "colluder signs"):
        relay, puppets = opened()
        stranger = new_identity() if fake == "own key" else puppets[0].identity
        payload = payload_of(puppets[0].advertise(relay.config), node_id="mal", mask_pk=AgreementKey.generate().public)
        signer = "dot" if fake == "colluder signs" else "mal"
        sybil = signed(stranger, "advertise", payload, signer)
        extended = listed(*(relay.got[n][0] for n in relay.who(0)), sybil)
        refused(relay, "ada", extended, "BAD_[A-Z]+", puppets)


def test_a_manifest_with_sybils():
    """The coordinator's own manifest, in which every other key is its own: its digest is not the pinned one."""
    lab = Lab(4)
    keys = {n: new_identity() for n in lab.names[1:]} | {"ada": lab.identities["ada"]}
    forged = CohortManifest.form("heart-study", "trial", 1, {n: i.public_bytes for n, i in keys.items()})
    relay = Relay(lab, lab.config(cohort_digest=forged.digest), lab.cast())
    with pytest.raises(SecAggError, match="^BAD_COHORT: "):
        relay.ask("ada", 0, relay.config)
    assert lab.memories["ada"].released("x", "y", 0) is None
    assert relay.got == {}


def test_one_node_twice():
    relay, puppets = opened()
    twice = listed(*(relay.got[n][0] for n in relay.who(0)), relay.got["bea"][0])
    refused(relay, "ada", twice, "BAD_KEY", puppets)


@pytest.mark.parametrize("copied", ["mask_pk", "share_pk", "both in one", "crosswise"])
def test_one_key_twice(copied):
    """A colluder advertises keys of another node, or one key in both places."""
    relay, puppets = opened()
    theirs = pb.Advertise.FromString(pb.Signed.FromString(relay.got["bea"][0]).payload)
    own = pb.Advertise.FromString(pb.Signed.FromString(relay.got["dot"][0]).payload)
    changes = {
        "mask_pk": {"mask_pk": theirs.mask_pk},
        "share_pk": {"share_pk": theirs.share_pk},
        "both in one": {"share_pk": own.mask_pk},
        "crosswise": {"share_pk": theirs.mask_pk},
    }[copied]
    forged = signed(puppets[0].identity, "advertise", payload_of(relay.got["dot"][0], **changes), "dot")
    refused(relay, "ada", swapped(relay, dot=forged), "BAD_KEY", puppets)


@pytest.mark.parametrize("key", ["zero", "one", "order 8", "order 4", "p", "p + 1", "top bit", "short", "long", "none"])
@pytest.mark.parametrize("place", ["mask_pk", "share_pk"])
def test_keys_that_agree_with_everybody(key, place):
    """Small order and other encodings (RFC 7748, 6.1): a colluder's shares and masks would be known to all."""
    p = 2**255 - 19
    low = 325606250916557431795983626356110631294008115727848805560023387167927233504
    value = {
        "zero": bytes(32),
        "one": (1).to_bytes(32, "little"),
        "order 8": low.to_bytes(32, "little"),
        "order 4": (p - 1).to_bytes(32, "little"),
        "p": p.to_bytes(32, "little"),
        "p + 1": (p + 1).to_bytes(32, "little"),
        "top bit": (9 | 1 << 255).to_bytes(32, "little"),
        "short": bytes([9]) * 31,
        "long": bytes([9]) * 33,
        "none": b"",
    }[key]
    relay, puppets = opened()
    forged = signed(puppets[0].identity, "advertise", payload_of(relay.got["dot"][0], **{place: value}), "dot")
    refused(relay, "ada", swapped(relay, dot=forged), "BAD_KEY", puppets)


@pytest.mark.parametrize("fault", ["shorter", "empty", "longer"])
def test_a_commitment_that_is_no_digest(fault):
    relay, puppets = opened()
    value = {"shorter": bytes(31), "empty": b"", "longer": bytes(33)}[fault]
    forged = signed(puppets[0].identity, "advertise", payload_of(relay.got["dot"][0], self_seed_commit=value), "dot")
    refused(relay, "ada", swapped(relay, dot=forged), "BAD_[A-Z]+", puppets)
