"""Whole sessions in one process whose nodes vanish when a test says so. Vectors keep to the bounds of their streams."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pytest

from fedsecure.crypto.keystream import Prg
from fedsecure.errors import SecAggError
from fedsecure.secagg.machines.coordinator import SecAggCoordinator
from fedsecure.secagg.machines.memory import MemoryOnly
from fedsecure.secagg.machines.node import NodeState, SecAggNode, SessionDue
from fedsecure.secagg.machines.session import deliver, ephemeral_cohort
from fedsecure.secagg.protocol.messages import SessionConfig
from fedsecure.secagg.values.spec import StreamSpec, Weighting
from fedsecure.secagg.values.streams import Place, Stream, layout_digest

#: When a node vanishes: before it answers this leg, or (``STAYS``) never. In leg 2 it may break off in mid-upload.
STAYS = 5
EXPERIMENT = hashlib.sha256(b"a plan").hexdigest()
NOW = 1_800_000_000_000

cohort_of = lru_cache(maxsize=8)(lambda count: ephemeral_cohort("heart-study", [f"n{i:02}" for i in range(count)]))


def make_stream(name: str, ring_bits: int, values: int) -> Stream:
    places = (Place("w", "float32", (values,)),)
    frac_bits = 20 if ring_bits == 32 else 40
    return Stream(
        StreamSpec(name, values + 1, ring_bits, frac_bits, 1.0, Weighting.NONE, 1, layout_digest(places)), places
    )


STREAMS = (make_stream("m.update.a", 32, 6), make_stream("m.update.b", 64, 3), make_stream("m.update.c", 64, 1))


def values_of(node: str, streams: tuple[Stream, ...], seed: int) -> dict[str, list[int]]:
    """What ``node`` contributes, as integers: both ends of the range of a value among them, then a clipped count."""
    rng = np.random.default_rng([seed, *node.encode()])
    found = {}
    for stream in streams:
        most = 1 << stream.spec.frac_bits
        inner = rng.integers(-most, most, stream.spec.length - 1, endpoint=True).tolist()
        inner[0] = [-most, most, inner[0]][int(rng.integers(3))]
        found[stream.spec.name] = [*inner, int(rng.integers(0, stream.spec.length))]
    return found


class Rehearsal:
    """A cohort, what each of its nodes contributes, and what each remembers. Each round is of another model."""

    def __init__(self, count: int, *, streams=STREAMS, prg=Prg.AES_256_CTR, seed=0) -> None:
        self.manifest, self.identities = cohort_of(count)
        self.names = tuple(sorted(self.identities))
        self.threshold = self.manifest.threshold.required
        self.streams, self.prg, self.now, self.round = streams, prg, NOW, 0
        self.values = {name: values_of(name, streams, seed) for name in self.names}
        self.memories = {name: MemoryOnly() for name in self.names}

    def config(self, **changes) -> SessionConfig:
        fields = {
            "experiment": EXPERIMENT,
            "round": self.round,
            "purpose": "update",
            "attempt": 0,
            "cohort_digest": self.manifest.digest,
            "state_digest": self.round.to_bytes(32, "big"),
            "prev_result": b"",
            "threshold": self.threshold,
            "min_survivors": self.threshold,
            "prg": self.prg,
            "streams": tuple(stream.spec for stream in self.streams),
            "dp_digest": b"",
            "nonce": os.urandom(32),
            "deadline_ms": NOW + 60_000,
        }
        return SessionConfig(**(fields | changes))

    def coordinator(self, config=None, **options) -> SecAggCoordinator:
        return SecAggCoordinator(config or self.config(), self.manifest, self.streams, self.names, **options)

    def due(self, name: str, **changes) -> SessionDue:
        fields = {
            "node": name,
            "manifest": self.manifest,
            "experiment": EXPERIMENT,
            "round": self.round,
            "purpose": "update",
            "streams": self.streams,
            "state_digest": self.round.to_bytes(32, "big"),
            "prev_result": b"",
            "min_survivors": self.threshold,
        }
        return SessionDue(**(fields | changes))

    def vector(self, name: str) -> dict[str, np.ndarray]:
        """What ``name`` contributes, on the ring."""
        return {
            s.spec.name: np.array(
                [v % 2**s.spec.ring_bits for v in self.values[name][s.spec.name]], f"uint{s.spec.ring_bits}"
            )
            for s in self.streams
        }

    def node(self, name: str, *, due=None, **options) -> SecAggNode:
        return SecAggNode(
            due or self.due(name),
            self.identities[name],
            self.vector(name),
            self.memories[name],
            now_ms=lambda: self.now,
            **options,
        )

    def nodes(self) -> dict[str, SecAggNode]:
        return {name: self.node(name) for name in self.names}

    def plain_sum(self, names) -> dict[str, list[int]]:
        """The sum of what ``names`` contribute, in Python's integers."""
        return {
            s.spec.name: [sum(column) for column in zip(*(self.values[n][s.spec.name] for n in names), strict=True)]
            for s in self.streams
        }


def answer_leg(coordinator, nodes, vanish: Mapping[str, int]) -> None:
    """Every node that is waited for answers, but those that vanish before this leg."""
    leg = coordinator.leg
    for name in coordinator.waiting:
        stage = vanish.get(name, STAYS)
        if stage > leg:
            deliver(coordinator, name, leg, nodes[name].answer(leg, coordinator.message(name)))
        elif stage == leg == 2 and breaks_off(name):
            deliver_part(coordinator, name, nodes[name].mask(coordinator.message(name)))


def breaks_off(name: str) -> bool:
    """Whether a node that vanishes in leg 2 does so in mid-upload; the others do before they send anything."""
    return bool(int(name[1:]) % 2)


def deliver_part(coordinator, name: str, masked) -> None:
    """All of the masked vectors of a node, but not the message that ends them."""
    coordinator.begin_vectors(name)
    for chunk in masked.chunks():
        coordinator.receive_chunk(name, chunk)


def run(coordinator, nodes, vanish: Mapping[str, int] | None = None) -> None:
    """Leg after leg, until the session is over; a failure is in ``coordinator.failure``."""
    while not coordinator.done:
        answer_leg(coordinator, nodes, vanish or {})
        try:
            coordinator.advance()
        except SecAggError:
            return


def run_to(coordinator, nodes, leg: int, vanish: Mapping[str, int] | None = None) -> None:
    """As far as ``leg`` is open and nobody has answered it."""
    while coordinator.leg < leg:
        answer_leg(coordinator, nodes, vanish or {})
        coordinator.advance()


def signed_sums(sums) -> dict[str, list[int]]:
    """The sums as signed integers."""
    return {name: v.view(f"int{8 * v.itemsize}").tolist() for name, v in sums.vectors.items()}


def expected_end(names, vanish: Mapping[str, int], threshold: int) -> tuple[int | None, tuple[str, ...]]:
    """The leg at which a session fails, or ``None``, and U3: from the table of what a drop-out does."""
    for leg in range(5):
        if sum(vanish.get(name, STAYS) > leg for name in names) < threshold:
            return leg, ()
    return None, tuple(name for name in names if vanish.get(name, STAYS) > 2)


def check_dropouts(rehearsal: Rehearsal, vanish: Mapping[str, int]) -> None:
    """Run a session with these drop-outs: it ends as it is due."""
    rehearsal.round += 1
    coordinator, nodes = rehearsal.coordinator(), rehearsal.nodes()
    run(coordinator, nodes, vanish)
    check_end(rehearsal, coordinator, nodes, vanish)


def check_end(rehearsal: Rehearsal, coordinator, nodes, vanish: Mapping[str, int]) -> None:
    """How a session with these drop-outs ends: with an exact sum of U3 and no more, or TOO_FEW_NODES at the leg that is
    due, and no share given before leg 4."""
    leg, survivors = expected_end(rehearsal.names, vanish, rehearsal.threshold)
    if leg is not None:
        assert coordinator.leg == leg, vanish
        assert str(coordinator.failure).startswith("TOO_FEW_NODES: "), vanish
        with pytest.raises(SecAggError, match=r"^TOO_FEW_NODES: "):
            _ = coordinator.outcome
        assert leg == 4 or not [name for name, node in nodes.items() if node.state is NodeState.RELEASED], vanish
        return
    sums = coordinator.outcome
    assert sums.survivors == survivors, vanish
    assert signed_sums(sums) == rehearsal.plain_sum(survivors), vanish
    assert set(sums.dropped) == {name for name, stage in vanish.items() if stage < STAYS}, vanish
    assert sums.findings == (), vanish
