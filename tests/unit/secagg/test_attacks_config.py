"""A coordinator that chooses: other models, sums over one or two, a lower threshold, hostile streams and numbers."""

from __future__ import annotations

import math

import pytest
from adversary import Lab, Relay, spec_message
from adversary_knowledge import Knowledge

from fedsecure.crypto.keystream import Prg
from fedsecure.errors import SecAggError
from fedsecure.secagg.v1 import secagg_pb2 as pb


def refused_at_once(config, code="BAD_CONFIG", *, lab, says=""):
    """A node to which ``config`` is shown leaves with ``code`` and has told nothing but that."""
    relay = Relay(lab, config, lab.cast())
    with pytest.raises(SecAggError, match=f"^{code}: ") as caught:
        relay.ask("ada", 0, config)
    assert says in str(caught.value)
    assert relay.got == {}
    assert relay.cast["ada"].state.name == "ABORTED"
    with pytest.raises(SecAggError):
        relay.ask("ada", 0, lab.config())
    return relay


def test_the_genuine_configuration_is_accepted():
    """So that every refusal below is of what was changed."""
    lab = Lab(4)
    relay = Relay(lab, lab.config(), lab.cast()).run()
    assert Knowledge(relay).learned_sums() == {frozenset(lab.names)}


# different models to different nodes


def test_a_model_that_this_node_did_not_train_from():
    lab = Lab(4)
    refused_at_once(lab.config(global_state_digest=bytes(32)), lab=lab, says="state_digest")


def test_different_models_to_different_nodes():
    """ada alone trained from the real model; the coordinator tells each node's own digest to it. With the others'
    vectors all zero, the sum would be hers."""
    lab = Lab(4)
    dead = bytes(32)
    cast = {n: lab.node(n, state_digest=lab.state if n == "ada" else dead) for n in lab.names[:3]}
    cast["dot"] = lab.puppet("dot")
    common = pb.SessionConfig.FromString(lab.config())
    relay = Relay(lab, common.SerializeToString(deterministic=True), cast)
    common.global_state_digest = dead
    other = common.SerializeToString(deterministic=True)
    for node in lab.names:
        relay.ask(node, 0, relay.config if node == "ada" else other)
    second = lab.puppet("dot")
    for node, advertised in (("ada", second.advertise(relay.config)), ("bea", relay.got["dot"][0])):
        messages = [advertised if n == "dot" else relay.got[n][0] for n in lab.names]
        key_list = pb.KeyList(advertise=[pb.Signed.FromString(m) for m in messages]).SerializeToString()
        with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT: "):
            relay.ask(node, 1, key_list)
    assert Knowledge(relay, [cast["dot"], second]).learned_sums() == set()


def test_nodes_that_believe_in_one_model_sum_what_the_models_gave():
    """What is at stake: with dead models to all others, but one digest claimed for all, the sum is ada's vector."""
    lab = Lab(4)
    for name in lab.names[1:]:
        lab.vectors[name] = {stream: vector * 0 for stream, vector in lab.vectors[name].items()}
    relay = Relay(lab, lab.config(), lab.cast()).run()
    assert Knowledge(relay).learned_sums() == {frozenset(lab.names)}
    total = lab.total(lab.names)
    assert all((total[stream] == vector).all() for stream, vector in lab.vectors["ada"].items())


def test_a_result_that_was_never_announced():
    lab = Lab(4)
    refused_at_once(lab.config(prev_result_digest=bytes(32)), lab=lab, says="prev_result")


def test_an_announced_result_that_is_left_out():
    """The chain from round to round cannot be begun anew."""
    lab = Lab(4)
    node = lab.node("ada", prev_result=bytes(32))
    with pytest.raises(SecAggError, match="^BAD_CONFIG: prev_result none"):
        node.answer(0, lab.config())


def test_noise_that_nobody_agreed_to():
    lab = Lab(4)
    refused_at_once(lab.config(dp_digest=bytes(32)), lab=lab, says="dp_digest")


# sums over one or two, and lower thresholds


@pytest.mark.parametrize("fewest", [0, 1, 2, 65, 2**32 - 1])
def test_fewer_survivors_than_three(fewest):
    lab = Lab(4)
    refused_at_once(lab.config(min_survivors=fewest), lab=lab)


@pytest.mark.parametrize("fewest", [4, 6])
def test_fewer_survivors_than_plan_or_policy_ask_for(fewest):
    """Five nodes, t = 4: a plan of five takes no session of four, nor one of more than there are."""
    lab = Lab(5)
    node = lab.node("ada", min_survivors=5)
    with pytest.raises(SecAggError, match=f"^BAD_CONFIG: min_survivors {fewest} where 5..5 is due"):
        node.answer(0, lab.config(min_survivors=fewest))
    assert node.state.name == "ABORTED"
    assert lab.node("ada", min_survivors=5).answer(0, lab.config(min_survivors=5))
    assert lab.node("bea", min_survivors=3).answer(0, lab.config(min_survivors=5)), "more than is due is welcome"


@pytest.mark.parametrize("leg", [1, 2, 3])
def test_a_session_of_fewer_than_plan_or_policy_ask_for(leg):
    """Four of five would do for the threshold, but not for a node whose plan says five."""
    lab = Lab(5)
    cast = {name: lab.node(name, min_survivors=5) for name in lab.names}
    relay = Relay(lab, lab.config(min_survivors=5), cast).run(0, leg - 1)
    chosen = lab.names[:4]
    message = {1: relay.key_list, 2: lambda c: relay.inbox("ada", c), 3: relay.survivors}[leg](chosen)
    with pytest.raises(SecAggError, match="^TOO_FEW_NODES: 4 nodes .* where 5 are needed"):
        relay.ask("ada", leg, message)
    assert relay.cast["ada"].state.name == "ABORTED"
    assert Knowledge(relay).learned_sums() == set()


@pytest.mark.parametrize("number", [0, 2, 6, 2**32 - 1])
def test_a_session_number_of_another_attempt(number):
    lab = Lab(4)
    node = lab.node("ada", attempts=range(3, 6))
    with pytest.raises(SecAggError, match=f"^BAD_CONFIG: attempt {number + 1} where 4..6 is due"):
        node.answer(0, lab.config(attempt=number))
    assert lab.node("ada", attempts=range(3, 6)).answer(0, lab.config(attempt=5))


def test_people_read_of_rounds_from_one():
    """On the wire they count from 0, as in the log."""
    lab = Lab(4)
    with pytest.raises(SecAggError, match="^BAD_CONFIG: round 7 where 5 is due$"):
        lab.node("ada", round=4).answer(0, lab.config(round=6))


@pytest.mark.parametrize("threshold", [0, 1, 2, 3, 5, 2**32 - 1])
def test_another_threshold_than_the_cohorts(threshold):
    """Five nodes: four are needed, whatever the coordinator says, also when it says more."""
    lab = Lab(5)
    refused_at_once(lab.config(threshold=threshold), lab=lab)


@pytest.mark.parametrize("threshold", [2, 3])
def test_a_lower_threshold_with_survivors_to_match(threshold):
    lab = Lab(5)
    refused_at_once(lab.config(threshold=threshold, min_survivors=threshold), lab=lab)


@pytest.mark.parametrize("few", [1, 2, 3])
@pytest.mark.parametrize("leg", [1, 2, 3])
def test_a_session_of_few(few, leg):
    """In five nodes, lists of one, two and three in each leg that has a list: refused in that leg."""
    lab = Lab(5)
    cast = lab.cast("dot", "eve")
    relay = Relay(lab, lab.config(), cast).run(0, leg - 1)
    chosen = ["ada", "dot", "eve"][:few]
    message = {1: relay.key_list, 2: lambda c: relay.inbox("ada", c), 3: relay.survivors}[leg](chosen)
    with pytest.raises(SecAggError, match="^TOO_FEW_NODES: "):
        relay.ask("ada", leg, message)
    assert relay.cast["ada"].state.name == "ABORTED"
    assert Knowledge(relay, [cast["dot"], cast["eve"]]).learned_sums() == set()


def test_too_few_signatures():
    lab = Lab(5)
    cast = lab.cast("dot", "eve")
    relay = Relay(lab, lab.config(), cast).run(0, 3)
    with pytest.raises(SecAggError, match="^TOO_FEW_NODES: "):
        relay.ask("ada", 4, relay.consistency(*(relay.got[n][3] for n in ("ada", "dot", "eve"))))
    assert Knowledge(relay, [cast["dot"], cast["eve"]]).learned_sums() == set()


def test_nodes_that_take_any_list_are_summed_alone():
    """What is at stake: puppets that follow any list give the sum over one."""
    lab = Lab(4)
    cast = lab.cast(*lab.names)
    relay = Relay(lab, lab.config(), cast).run(0, 3)
    for node in lab.names:
        relay.got[node][4] = cast[node].unmask(b"", ["ada"])
    assert frozenset({"ada"}) in Knowledge(relay).learned_sums()


# hostile streams and numbers

HOSTILE = [
    ("name", "fedavg.update.c"), ("name", ""), ("name", "A" * 300), ("name", "a b"), ("length", 0), ("length", 1),
    ("length", 4), ("length", 6), ("length", 2**31), ("length", 2**63), ("length", 2**64 - 1), ("ring_bits", 0),
    ("ring_bits", 1), ("ring_bits", 32), ("ring_bits", 128), ("ring_bits", 2**32 - 1), ("frac_bits", 0),
    ("frac_bits", 31), ("frac_bits", 63), ("frac_bits", 64), ("frac_bits", 2**32 - 1), ("clip_abs", 0.0),
    ("clip_abs", -1.0), ("clip_abs", 1e-300), ("clip_abs", 1e300), ("clip_abs", math.inf), ("clip_abs", math.nan),
    ("clip_abs", 0.5), ("clip_abs", math.nextafter(1.0, 2)), ("weighting", 1), ("weighting", 2), ("weighting", 3),
    ("weighting", 2**31 - 1), ("weighting", -1), ("layout_digest", bytes(32)), ("layout_digest", b""),
    ("layout_digest", bytes(33)), ("max_count", 0), ("max_count", 2), ("max_count", 2**64 - 1),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), HOSTILE, ids=lambda v: str(v)[:20])
def test_a_hostile_stream(field, value):
    lab = Lab(4)
    first, second = (s.spec for s in lab.streams)
    refused_at_once(lab.config(streams=[spec_message(first, **{field: value}), spec_message(second)]), lab=lab)


@pytest.mark.parametrize("order", ["none", "one", "swapped", "twice", "three", "seventeen", "a thousand"])
def test_other_streams_than_are_due(order):
    lab = Lab(4)
    a, b = (spec_message(s.spec) for s in lab.streams)
    more = [spec_message(lab.streams[0].spec, name=f"fedavg.update.x{i}") for i in range(1000)]
    offered = {
        "none": [], "one": [a], "swapped": [b, a], "twice": [a, a], "three": [a, b, more[0]],
        "seventeen": more[:17], "a thousand": more,
    }[order]  # fmt: skip
    refused_at_once(lab.config(streams=offered), lab=lab)


NUMBERS = [
    ("round", 0), ("round", 2), ("round", 2**63), ("round", 2**64 - 1), ("prg", 0), ("prg", 3), ("prg", -1),
    ("experiment_id", ""), ("experiment_id", "0" * 64), ("experiment_id", "é" * 64), ("experiment_id", "a" * 5000),
    ("purpose", ""), ("purpose", "other"), ("purpose", "x" * 20000), ("cohort_digest", b""),
    ("global_state_digest", b""), ("global_state_digest", bytes(31)), ("prev_result_digest", bytes(5)),
    ("coordinator_nonce", b""), ("coordinator_nonce", bytes(10**5)), ("dp_digest", bytes(1)),
    ("deadline_unix_ms", 0), ("deadline_unix_ms", 2**64 - 1),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), NUMBERS, ids=lambda v: str(v)[:20])
def test_hostile_numbers(field, value):
    lab = Lab(4)
    refused_at_once(lab.config(**{field: value}), "(BAD_CONFIG|BAD_COHORT|DEADLINE)", lab=lab)


def test_a_keystream_that_this_node_does_not_allow():
    lab = Lab(4)
    node = lab.node("ada", prgs=(Prg.CHACHA20,))
    with pytest.raises(SecAggError, match="^BAD_CONFIG: .*prg"):
        node.answer(0, lab.config())


@pytest.mark.parametrize("leg", range(5))
def test_the_deadline(leg):
    """Past it a node answers nothing, in any state, and has no secret left."""
    lab = Lab(4)
    relay = Relay(lab, lab.config(), lab.cast()).run(0, leg - 1)
    message = relay.message("ada", leg)
    lab.now += 60_001
    with pytest.raises(SecAggError, match="^DEADLINE: "):
        relay.ask("ada", leg, message)
    lab.now -= 60_001
    with pytest.raises(SecAggError):
        relay.ask("ada", leg, message)
    assert relay.cast["ada"].state.name == "ABORTED"
    assert Knowledge(relay).learned_sums() == set()
