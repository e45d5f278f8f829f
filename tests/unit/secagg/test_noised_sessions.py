"""Sessions of contributions with noise: drawn once, the same in every session, and no other noise accepted."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from rehearsal import EXPERIMENT, Rehearsal, make_stream, run

from fedsecure.errors import ConfigError, LocalProtocolError, SecAggError
from fedsecure.secagg.machines.node import SecAggNode
from fedsecure.secagg.machines.session import run_session
from fedsecure.secagg.values.noise import NoiseSpec, add_noise, dp_digest
from fedsecure.secagg.values.noised import NoisedVectors
from fedsecure.secagg.values.streams import unflatten

LARGE, PLAIN = make_stream("m.update.large", 64, 4000), make_stream("m.update.plain", 32, 5)
STREAMS = (LARGE, PLAIN)
NODES = 5


def noise_of(**changes):
    fields = {"record_clip": Fraction(1), "sigma": Fraction(1, 2), "nodes": NODES, "colluders": 1}
    return NoiseSpec(LARGE, **(fields | changes))


NOISES = (noise_of(),)
DIGEST = dp_digest(NOISES)


class NoisedRehearsal(Rehearsal):
    """Five nodes that drew their noise once, and stored it."""

    def __init__(self) -> None:
        super().__init__(NODES, streams=STREAMS)
        self.stored = {name: draw(self.vector(name)).to_bytes() for name in self.names}

    def config(self, **changes):
        return super().config(**({"dp_digest": DIGEST} | changes))

    def coordinator(self, config=None, *, noises=NOISES):
        return super().coordinator(config, noises=noises)

    def due(self, name, **changes):
        return super().due(name, **({"dp_digest": DIGEST} | changes))

    def node(self, name, *, due=None, vectors=None):
        vectors = NoisedVectors.from_bytes(self.stored[name]) if vectors is None else vectors
        memory, identity = self.memories[name], self.identities[name]
        return SecAggNode(due or self.due(name), identity, vectors, memory, now_ms=lambda: self.now)

    def noised_sum(self, names):
        vectors = [NoisedVectors.from_bytes(self.stored[name]) for name in names]
        return {
            s.spec.name: np.add.reduce([v[s.spec.name] for v in vectors], dtype=f"uint{s.spec.ring_bits}")
            for s in STREAMS
        }


def draw(vectors, *, streams=STREAMS, noises=NOISES, purpose="update", round_=0):
    return NoisedVectors.draw(vectors, streams, noises, experiment=EXPERIMENT, purpose=purpose, round_=round_)


@pytest.fixture(scope="module")
def lab():
    return NoisedRehearsal()


def test_the_sum_is_that_of_the_values_within_the_noise(lab):
    sums = run_session(lab.coordinator(), lab.nodes())
    assert sums.survivors == lab.names
    for name, due in lab.noised_sum(lab.names).items():
        assert np.array_equal(sums.vectors[name], due)
    plain = lab.plain_sum(lab.names)
    assert sums.vectors["m.update.plain"].view(np.int32).tolist() == plain["m.update.plain"]
    noise = NOISES[0]
    total = sums.vectors["m.update.large"].view(np.int64)
    assert total[-1] == 0  # the clipped count of a stream with noise is not told
    added = total[:-1] - np.array(plain["m.update.large"][:-1])
    assert np.abs(added).max() <= noise.headroom(NODES)
    standard = added / math.sqrt(NODES * noise.variance)
    assert abs(standard.var() - 1) < 7 * math.sqrt(2 / 4000)
    summed, clipped = unflatten(
        LARGE, sums.vectors["m.update.large"], contributors=NODES, nodes=NODES, headroom=noise.headroom(NODES)
    )
    assert clipped == 0
    assert summed["w"].shape == (4000,)


def test_two_sessions_of_one_contribution_sum_the_same_noise():
    lab = NoisedRehearsal()
    failed = lab.coordinator()
    run(failed, lab.nodes(), {"n00": 3, "n01": 3})  # two of five leave when their vectors are there
    assert "TOO_FEW_NODES" in str(failed.failure)
    again = lab.coordinator(lab.config(attempt=1))
    run(again, lab.nodes(), {"n02": 2})
    due = lab.noised_sum(name for name in lab.names if name != "n02")
    assert all(np.array_equal(again.outcome.vectors[name], due[name]) for name in due)


@pytest.mark.parametrize("other", [(), (noise_of(sigma=Fraction(1, 4)),)], ids=["none", "less"])
def test_a_session_with_other_noise_than_is_due_is_refused(lab, other):
    node, config = lab.node("n00"), lab.config(dp_digest=dp_digest(other))
    with pytest.raises(SecAggError, match="BAD_CONFIG: dp_digest"):
        node.advertise(config.to_bytes())
    coordinator = lab.coordinator(config, noises=other)
    with pytest.raises(SecAggError, match="TOO_FEW_NODES"):
        run_session(coordinator, lab.nodes())


def test_a_node_that_adds_noise_takes_part_in_no_session_without(lab):
    plain = Rehearsal(NODES, streams=STREAMS)
    with pytest.raises(SecAggError, match="BAD_CONFIG: dp_digest"):
        plain.node("n00").advertise(lab.config().to_bytes())


def test_a_coordinator_that_does_not_know_the_noise_opens_no_session(lab):
    elsewhere = NoiseSpec(make_stream("m.update.other", 64, 4000), Fraction(1), Fraction(1, 2), NODES, 1)
    for config, noises in ((None, ()), (lab.config(dp_digest=b""), NOISES), (None, (noise_of(colluders=2),))):
        with pytest.raises(ConfigError, match="for other noise"):
            lab.coordinator(config, noises=noises)
    with pytest.raises(ConfigError, match="for other noise"):
        lab.coordinator(lab.config(dp_digest=dp_digest([elsewhere])), noises=[elsewhere])


def test_only_vectors_that_noise_was_drawn_for_go_into_a_session_with_noise(lab):
    by_hand = lab.vector("n00")
    add_noise(by_hand["m.update.large"], NOISES[0])
    with pytest.raises(LocalProtocolError, match="not those that noise was drawn for"):
        lab.node("n00", vectors=by_hand)
    with pytest.raises(LocalProtocolError, match="not the noise that is due"):
        lab.node("n00", due=lab.due("n00", dp_digest=b""))
    weaker = draw(lab.vector("n00"), noises=[noise_of(sigma=Fraction(1, 4))])
    with pytest.raises(LocalProtocolError, match="not the noise that is due"):
        lab.node("n00", vectors=weaker)
    for changes in ({"round_": 1}, {"purpose": "statistics"}):
        with pytest.raises(LocalProtocolError, match="or of another experiment"):
            lab.node("n00", vectors=draw(lab.vector("n00"), **changes))


def test_noise_is_drawn_in_place_and_not_twice(lab):
    vectors = lab.vector("n01")
    before = {name: vector.copy() for name, vector in vectors.items()}
    drawn = draw(vectors)
    assert drawn["m.update.large"] is vectors["m.update.large"]
    assert not np.array_equal(vectors["m.update.large"], before["m.update.large"])
    assert np.array_equal(drawn["m.update.plain"], before["m.update.plain"])
    with pytest.raises(ConfigError, match="read-only"):
        draw(vectors)
    with pytest.raises(ConfigError, match="to be written to"):
        add_noise(drawn["m.update.large"], NOISES[0])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"noises": ()}, "none is given"),
        ({"streams": (LARGE,)}, "not those of the streams"),
        ({"streams": (make_stream("m.update.large", 64, 3999), PLAIN)}, "no such stream, or with another"),
        ({"noises": (NOISES[0], NOISES[0])}, "given twice"),
    ],
)
def test_nothing_is_drawn_when_noise_and_streams_do_not_fit(lab, changes, says):
    vectors = lab.vector("n02")
    with pytest.raises(ConfigError, match=says):
        draw(vectors, **changes)
    assert all(np.array_equal(vectors[name], vector) for name, vector in lab.vector("n02").items())


def test_what_is_stored_is_read_back_as_it_was(lab):
    drawn = draw(lab.vector("n03"), round_=7)
    read = NoisedVectors.from_bytes(drawn.to_bytes())
    assert read.about == (EXPERIMENT, "update", 7)
    assert read.dp_digest == DIGEST
    assert all(np.array_equal(read[name], drawn[name]) for name in drawn)
    assert list(read) == ["m.update.large", "m.update.plain"]
    assert repr(read) == "NoisedVectors(update, round 8, 2 streams)"


def damaged():
    data = draw(NoisedRehearsal().vector("n00")).to_bytes()
    size = int.from_bytes(data[:4], "big")
    about, rest = data[4 : 4 + size], data[4 + size :]

    def with_about(text):
        return len(text).to_bytes(4, "big") + text + rest

    yield from (
        b"",
        data[:3],
        data[:100],
        data[:-1],
        bytes(4) + data[4:],
        b"\xff" * 4 + data[4:],
        with_about(b"[" * 9000),
    )
    yield with_about(b"[]")
    for old, new in (
        (b'"format": 1', b'"format": 2'), (b'"round": 0', b'"round": "0"'), (b'"round": 0', b'"round": true'),
        (b'"m.update.plain"', b'"m.update.large"'), (b', "m.update.plain"', b""), (b"update.large", b"\xff"),
        (DIGEST.hex().encode(), b"00"), (DIGEST.hex().encode(), b"zz" * 32), (b'"purpose"', b'"propose"'),
        (b'"experiment": ', b'"more": 1, "experiment": '),
    ):  # fmt: skip
        assert old in about
        yield with_about(about.replace(old, new))


def test_a_damaged_store_is_told():
    for data in damaged():
        with pytest.raises(SecAggError, match="BAD_VECTOR: stored vectors with noise are damaged"):
            NoisedVectors.from_bytes(data)
