"""The noise of a plan in whole sessions: what remains of it when nodes drop out and others tell their shares."""

from __future__ import annotations

import math

import numpy as np
from rehearsal import EXPERIMENT, Rehearsal, run

from fedsecure.config import validate
from fedsecure.masked_plan import masked_exchanges, noised_streams
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.secagg.machines.node import SecAggNode
from fedsecure.secagg.values.noise import dp_digest
from fedsecure.secagg.values.noised import NoisedVectors
from fedsecure.secagg.values.streams import unflatten

NODES, LEAST, COLLUDERS, SIGMA = 5, 4, 2, 5.0
SMALL = {"name": "mlp", "hidden": [2]}
PLAN = validate(
    Plan,
    {
        "format": 1,
        "name": "shared",
        "rounds": 2,
        "task": {"kind": "image", "classes": ["a", "b", "c"], "shape": [1, 4, 4]},
        "model": SMALL,
        "method": {"name": "fedspm", "parametrisation": "explicit", "components": 8, "router": SMALL},
        "privacy": {
            "kind": "dp-sgd", "sigma": 1.0, "shares": "distributed", "mixing_sigma": SIGMA, "colluders": COLLUDERS,
        },
        "secagg": "required",
        "cohort": {"min_nodes": LEAST, "nodes": [f"n{i:02}" for i in range(NODES)]},
    },
    "plan",
)  # fmt: skip
STREAMS, NOISES = noised_streams(PLAN, 0, masked_exchanges(PLAN, build_method(PLAN))["update"])
(MASS,) = (noise.stream for noise in NOISES)


class Federation(Rehearsal):
    """Nodes that contribute zeros, with their share of the plan's noise, drawn anew for each round."""

    def __init__(self) -> None:
        super().__init__(NODES, streams=STREAMS)

    def stored(self) -> dict[str, bytes]:
        return {name: self._draw().to_bytes() for name in self.names}

    def _draw(self) -> NoisedVectors:
        zeros = {s.spec.name: np.zeros(s.spec.length, f"uint{s.spec.ring_bits}") for s in STREAMS}
        return NoisedVectors.draw(zeros, STREAMS, NOISES, experiment=EXPERIMENT, purpose="update", round_=self.round)

    def session(self, stored: dict[str, bytes], vanish: dict[str, int]):
        digest = dp_digest(NOISES)
        coordinator = self.coordinator(self.config(dp_digest=digest), noises=NOISES)
        nodes = {
            name: SecAggNode(
                self.due(name, dp_digest=digest),
                self.identities[name],
                NoisedVectors.from_bytes(data),
                self.memories[name],
                now_ms=lambda: self.now,
            )
            for name, data in stored.items()
        }
        run(coordinator, nodes, vanish)
        return coordinator.outcome


def in_records(vector: np.ndarray) -> np.ndarray:
    """A ring vector of mass, in records."""
    return vector[:-1].view(np.int64) / 2.0**MASS.spec.frac_bits


def test_drop_outs_and_colluders_leave_the_noise_that_is_charged() -> None:
    """Of 5 nodes one vanishes and two of the others tell their shares: what remains has sigma, by chi-square over
    repeated sessions; the sum itself has the noise of four shares."""
    lab, whole, rest = Federation(), [], []
    for lab.round in range(30):
        stored = lab.stored()
        sums = lab.session(stored, {"n01": 2})
        assert sums.survivors == ("n00", "n02", "n03", "n04")
        total = sums.vectors[MASS.spec.name]
        tensors, _ = unflatten(
            MASS, total, contributors=LEAST, nodes=NODES, headroom=NOISES[0].headroom(len(sums.survivors))
        )
        assert tensors["mass"].shape == (NODES, 8)
        told = [in_records(NoisedVectors.from_bytes(stored[name])[MASS.spec.name]) for name in ("n00", "n02")]
        whole.append(in_records(total))
        rest.append(whole[-1] - told[0] - told[1])
    for found, variance in ((whole, SIGMA**2 * LEAST / (LEAST - COLLUDERS)), (rest, SIGMA**2)):
        z = np.concatenate(found) / math.sqrt(variance)
        assert abs((z**2).sum() - z.size) < 8 * math.sqrt(2 * z.size)
