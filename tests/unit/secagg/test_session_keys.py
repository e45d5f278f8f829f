"""Advertised keys: in one's own name, for this session, strong, and nobody else's; at the coordinator and at a node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rehearsal import Rehearsal, run_to

from fedsecure.errors import SecAggError
from fedsecure.secagg.protocol.messages import ADVERTISE, key_list, parse_advertise, sign
from fedsecure.secagg.v1 import secagg_pb2 as pb

FAULTS = {
    "another's share key": (lambda own, other: replace(own, share_pk=other.share_pk), "BAD_KEY"),
    "another's mask key": (lambda own, other: replace(own, mask_pk=other.mask_pk), "BAD_KEY"),
    "another's key in the other place": (lambda own, other: replace(own, mask_pk=other.share_pk), "BAD_KEY"),
    "one key in both places": (lambda own, _: replace(own, mask_pk=own.share_pk), "BAD_KEY"),
    "another's commitment": (lambda own, other: replace(own, seed_commit=other.seed_commit), "BAD_KEY"),
    "in another's name": (lambda own, other: replace(own, node=other.node), "BAD_KEY"),
    "a share key of small order": (lambda own, _: replace(own, share_pk=bytes(32)), "BAD_KEY"),
    "a mask key of small order": (lambda own, _: replace(own, mask_pk=b"\1" + bytes(31)), "BAD_KEY"),
    "a key not in canonical form": (lambda own, _: replace(own, mask_pk=b"\xff" * 32), "BAD_KEY"),
    "another configuration": (lambda own, _: replace(own, config_digest=bytes(32)), "BAD_TRANSCRIPT"),
    "another cohort": (lambda own, _: replace(own, cohort_digest=bytes(32)), "BAD_TRANSCRIPT"),
}
every_fault = pytest.mark.parametrize("fault", FAULTS)


@pytest.fixture
def advertised():
    """A coordinator in leg 1, its nodes, and what n03 would advertise with a fault: ``Signed`` bytes."""
    rehearsal = Rehearsal(4)
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    run_to(coordinator, nodes, 1)
    signed = {s.signer: s for s in pb.KeyList.FromString(coordinator.message("n00")).advertise}
    own, other = (parse_advertise(signed[name].payload) for name in ("n03", "n02"))

    def faulty(fault):
        payload = FAULTS[fault][0](own, other).to_bytes()
        return sign(rehearsal.identities["n03"], ADVERTISE, payload, signer="n03")

    return rehearsal, coordinator, nodes, {n: s.SerializeToString() for n, s in signed.items()}, faulty


@every_fault
def test_a_node_takes_no_part_with_such_keys(advertised, fault):
    _, _, nodes, signed, faulty = advertised
    message = key_list((signed | {"n03": faulty(fault)}).values())
    with pytest.raises(SecAggError, match=rf"^{FAULTS[fault][1]}: "):
        nodes["n00"].share(message)


@every_fault
def test_the_coordinator_puts_such_a_node_out(advertised, fault):
    rehearsal, past, _, signed, faulty = advertised
    coordinator = rehearsal.coordinator(past.config)
    for name in ("n00", "n01", "n02"):
        coordinator.receive(name, 0, signed[name])
    with pytest.raises(SecAggError, match=rf"^{FAULTS[fault][1]}: "):
        coordinator.receive("n03", 0, faulty(fault))
    assert coordinator.dropped["n03"].startswith(FAULTS[fault][1])
    assert coordinator.waiting == ()


def test_the_same_node_twice_in_a_list_of_keys(advertised):
    _, _, nodes, signed, _ = advertised
    with pytest.raises(SecAggError, match=r"^BAD_KEY: the list of keys names node n03 twice"):
        nodes["n00"].share(key_list([*signed.values(), signed["n03"]]))


def test_without_a_fault_all_go_on(advertised):
    rehearsal, past, nodes, signed, _ = advertised
    coordinator = rehearsal.coordinator(past.config)
    for name, data in signed.items():
        coordinator.receive(name, 0, data)
    coordinator.advance()
    assert nodes["n00"].share(key_list(signed.values()))
    assert coordinator.waiting == rehearsal.names
