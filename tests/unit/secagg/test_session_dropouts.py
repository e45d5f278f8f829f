"""Exact sums whoever vanishes when: every pattern at N = 3, 4 and 5, by stage at 10, sampled at 50; and what remains
hidden, and possible, when too few are left. Every pattern at 10: ``test_session_dropouts_of_ten``."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from dropout_tree import in_order, walked
from rehearsal import STAYS, STREAMS, Rehearsal, check_dropouts, expected_end, make_stream, run, run_to, signed_sums

from fedsecure.crypto.agreement import AgreementKey
from fedsecure.crypto.keystream import Mask, Prg, add_masks
from fedsecure.errors import SecAggError
from fedsecure.secagg.machines.masking import masks_of_node
from fedsecure.secagg.machines.node import NodeState


def patterns(names: tuple[str, ...], threshold: int) -> list[dict[str, int]]:
    """Every pattern of who vanishes at which stage, 6^N, without those that are the same session: once a leg fails,
    it makes no difference when the others would have gone."""
    found = set()
    for stages in product(range(6), repeat=len(names)):
        leg, _ = expected_end(names, dict(zip(names, stages, strict=True)), threshold)
        found.add(stages if leg is None else tuple(min(stage, leg + 1) for stage in stages))
    return [dict(zip(names, stages, strict=True)) for stages in sorted(found)]


def gone(vanish: dict[str, int], threshold: int) -> dict[str, int]:
    """Those alone that vanish before the session ends."""
    leg, _ = expected_end(tuple(vanish), vanish, threshold)
    return {name: stage for name, stage in vanish.items() if stage <= (4 if leg is None else leg)}


def test_the_patterns_are_all_there():
    names = ("a", "b", "c")
    assert len(patterns(names, 3)) == 1 + 5 * 7
    assert len(patterns((*names, "d"), 3)) == (1 + 5 * 4) + 5 * 11 + 10 * 4 * 7


def test_every_pattern_of_three():
    rehearsal = Rehearsal(3, seed=3)
    for vanish in patterns(rehearsal.names, rehearsal.threshold):
        check_dropouts(rehearsal, vanish)


@pytest.mark.parametrize("count", [4, 5])
def test_every_pattern_of_four_and_five(count, tmp_path):
    """As one tree; ``test_session_dropouts_of_ten`` samples whole sessions."""
    rehearsal = Rehearsal(count)
    due = [gone(vanish, rehearsal.threshold) for vanish in patterns(rehearsal.names, rehearsal.threshold)]
    assert in_order(walked(tmp_path / "found", count, count, "any", "any", count)) == in_order(due)


def test_one_of_ten(tmp_path):
    names = Rehearsal(10).names
    due = [{}, *({name: stage} for name in names for stage in range(STAYS))]
    assert in_order(walked(tmp_path / "found", 10, 10, "any", "any", 1)) == in_order(due)


def test_sampled_patterns_of_ten():
    rehearsal, rng = Rehearsal(10, seed=12, prg=Prg.CHACHA20), np.random.default_rng(12)
    for size in (3, 3, 3, 3, 3, 4, 4, 10):
        gone = rng.choice(rehearsal.names, size, replace=False).tolist()
        check_dropouts(rehearsal, dict(zip(gone, rng.integers(0, 6, size).tolist(), strict=True)))


@pytest.mark.parametrize("seed", range(3))
def test_sampled_patterns_of_fifty(seed):
    """16 of 50 may vanish, and 16 do: at every stage some."""
    streams = (make_stream("m.update.a", 32, 40), make_stream("m.update.b", 64, 7))
    rehearsal, rng = Rehearsal(50, seed=50, streams=streams), np.random.default_rng(seed)
    gone = rng.choice(rehearsal.names, rehearsal.manifest.threshold.dropouts, replace=False).tolist()
    check_dropouts(rehearsal, dict(zip(gone, [0, 1, 2, 3, 4, *rng.integers(0, 5, 11).tolist()], strict=True)))


def test_one_too_many_of_fifty():
    rehearsal = Rehearsal(50, streams=STREAMS[:1])
    check_dropouts(rehearsal, dict.fromkeys(rehearsal.names[: rehearsal.manifest.threshold.dropouts + 1], 1))


@pytest.mark.parametrize("leg", range(4))
def test_after_too_few_the_same_vectors_are_summed_anew(leg):
    """Below t in legs 0 to 3 nothing is revealed; the next attempt has new keys and the same contributions."""
    rehearsal = Rehearsal(4)
    failed, nodes = rehearsal.coordinator(), rehearsal.nodes()
    run(failed, nodes, dict.fromkeys(rehearsal.names[:2], leg))
    assert str(failed.failure).startswith("TOO_FEW_NODES")
    assert not [name for name in rehearsal.names if nodes[name].state is NodeState.RELEASED]
    again = rehearsal.coordinator(rehearsal.config(attempt=1))
    run(again, rehearsal.nodes())
    assert signed_sums(again.outcome) == rehearsal.plain_sum(rehearsal.names)


def test_after_shares_were_given_nobody_sums_that_round_again():
    """Below t in leg 4, or a coordinator that dies there: those that released refuse, which is too many to go on."""
    rehearsal = Rehearsal(4)
    failed = rehearsal.coordinator()
    run(failed, rehearsal.nodes(), dict.fromkeys(rehearsal.names[:2], 4))
    assert failed.leg == 4
    again, nodes = rehearsal.coordinator(rehearsal.config(attempt=1)), rehearsal.nodes()
    for name in rehearsal.names[2:]:
        with pytest.raises(SecAggError, match=r"^ALREADY_RELEASED: "):
            nodes[name].advertise(again.message(name))
    rehearsal.round += 1
    check_dropouts(rehearsal, {})


def test_a_late_vector_stays_hidden():
    """Whoever drops out with its vector whole at the coordinator: its private mask key is rebuilt, its seed is not. All
    pair masks taken away, the vector is not there; were the seed known, it would be."""
    rehearsal = Rehearsal(5, streams=STREAMS[:1])
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    late, spec = rehearsal.names[1], STREAMS[0].spec
    run_to(coordinator, nodes, 2)
    seed, secret = bytes(nodes[late]._keys._seed), nodes[late]._keys._mask.secret_for_sharing()
    masked = nodes[late].mask(coordinator.message(late))
    advertised = coordinator._answers.advertised
    coordinator.drop(late, "its connection broke after the last chunk")
    run(coordinator, nodes)
    assert signed_sums(coordinator.outcome) == rehearsal.plain_sum([n for n in rehearsal.names if n != late])

    key, vector = AgreementKey(secret), masked._vectors[0].copy()
    shared = {peer: key.exchange(a.mask_pk, peer) for peer, a in advertised.items() if peer != late}
    masks = masks_of_node(late, seed, shared, nodes[late].transcript1, spec)
    add_masks(vector, [Mask(m.key, not m.subtract) for m in masks[1:]])
    contributed = rehearsal.vector(late)[spec.name]
    assert not np.array_equal(vector, contributed)
    add_masks(vector, [Mask(masks[0].key, subtract=True)])
    assert np.array_equal(vector, contributed)


def test_no_share_of_the_seed_of_a_dropped_node_is_given():
    rehearsal = Rehearsal(5)
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    gone = rehearsal.names[2]
    run_to(coordinator, nodes, 4, {gone: 2})
    for name in coordinator.waiting:
        coordinator.receive(name, 4, nodes[name].unmask(coordinator.message(name)))
    for shares in coordinator._answers.shares.values():
        assert {owner: share.kind for owner, share in shares.items()} == {
            name: "mask_sk" if name == gone else "self_seed" for name in rehearsal.names
        }


def test_threads_give_the_same_sum():
    stream, rng = make_stream("m.update.a", 32, 2_200_000), np.random.default_rng(3)
    rehearsal = Rehearsal(3, streams=STREAMS[:1])
    made = {name: rng.integers(0, 1000, stream.spec.length, np.uint32) for name in rehearsal.names}
    rehearsal.streams, rehearsal.vector = (stream,), lambda name: {stream.spec.name: made[name]}
    coordinator = rehearsal.coordinator(threads=2)
    run(coordinator, {name: rehearsal.node(name, threads=3) for name in rehearsal.names})
    assert np.array_equal(coordinator.outcome.vectors[stream.spec.name], sum(made.values()))
