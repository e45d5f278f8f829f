"""The protocol written a second time: nodes that share no code with ours but the primitives, in sums with ours."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from adversary import Lab

from fedsecure.crypto.keystream import Prg
from fedsecure.secagg.machines.coordinator import SecAggCoordinator
from fedsecure.secagg.protocol.messages import SessionConfig

STAGES = ("shares", "vector", "confirmation", "unmasking")


def summed(lab, cast, vanished, stage):
    """The outcome of a session of the coordinator that we ship; ``vanished`` is gone before it gives ``stage``."""
    config = SessionConfig.from_bytes(lab.config())
    coordinator = SecAggCoordinator(config, lab.manifest, lab.streams, lab.names)
    while not coordinator.done:
        leg = coordinator.leg
        for node in coordinator.waiting:
            if node == vanished and leg > STAGES.index(stage):
                coordinator.drop(node, "vanished")
                continue
            answer = cast[node].answer(leg, coordinator.message(node))
            if leg == 2:
                coordinator.begin_vectors(node)
                for chunk in answer.chunks():
                    coordinator.receive_chunk(node, chunk)
                answer = answer.done
            coordinator.receive(node, leg, answer)
        coordinator.advance()
    return coordinator.outcome


@pytest.mark.parametrize("prg", Prg)
@pytest.mark.parametrize("others", [(), ("ada",), ("bea", "dot"), ("ada", "bea", "cyd", "dot", "eve")])
@pytest.mark.parametrize(("vanished", "stage"), [("", ""), *product(("ada", "cyd", "eve"), STAGES)])
def test_both_give_the_plain_sum(prg, others, vanished, stage):
    lab = Lab(5, prg=prg)
    for vectors in lab.vectors.values():  # small enough for the coordinator's look at the range of a sum
        for name, vector in vectors.items():
            signed = np.random.default_rng([5, *name.encode()]).integers(-1000, 1000, vector.size)
            vector[:] = signed.astype(vector.dtype)
            vector[-1] = 1
    outcome = summed(lab, lab.cast(*others), vanished, stage)
    survivors = [n for n in lab.names if n != vanished or stage in {"confirmation", "unmasking"}]
    assert list(outcome.survivors) == survivors
    for name, total in lab.total(survivors).items():
        assert np.array_equal(outcome.vectors[name], total)
