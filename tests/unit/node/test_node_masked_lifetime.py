"""How long a session's keys live: by the coordinator's clock, and by the node's own, whatever the other says."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.crypto.keystream import Prg
from fedsecure.errors import SecAggError
from fedsecure.schema import Schema, TensorSpec
from fedsecure.secagg.machines.due import LONGEST_MS, SessionDue
from fedsecure.secagg.machines.memory import MemoryOnly
from fedsecure.secagg.machines.node import NodeState, SecAggNode
from fedsecure.secagg.machines.session import ephemeral_cohort
from fedsecure.secagg.protocol.sessionconfig import SessionConfig
from fedsecure.secagg.values.fixedpoint import ring_dtype
from fedsecure.secagg.values.masked import masked_streams
from fedsecure_coordinator.masking.buffers import Buffers
from fedsecure_coordinator.masking.session import Times
from fedsecure_coordinator.settings import LimitSettings
from fedsecure_node.masking.lifetime import Lifetime, longest_s
from fedsecure_node.masking.opened import OpenSession

NAMES = ("a", "b", "c")
NOW, DAY_MS = 1_800_000_000_000, 86_400_000


class Clocks:
    """The machine's own clock and the coordinator's, which says what it likes."""

    def __init__(self):
        self.own_s, self.shift_ms = 50.0, 0

    def coordinator_ms(self):
        return NOW + int(1000 * (self.own_s - 50)) + self.shift_ms

    def lifetime(self, seconds):
        return Lifetime(seconds, self.coordinator_ms, lambda: self.own_s)


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def opened(clocks):
    """opened(seconds, deadline_ms): node a's session of at most so many seconds, its keys advertised."""

    def begin(seconds, deadline_ms):
        manifest, identities = ephemeral_cohort("heart-study", NAMES)
        schema = Schema((TensorSpec("w", "float32", (3,), -1.0, 1.0, "a tensor"),))
        streams = masked_streams(schema, method="m", exchange="update", nodes=3)
        due = SessionDue("a", manifest, "ab" * 32, 0, "update", streams, bytes(32), b"", 3)
        config = SessionConfig(
            experiment=due.experiment, round=0, purpose="update", attempt=0, cohort_digest=manifest.digest,
            state_digest=bytes(32), prev_result=b"", threshold=3, min_survivors=3, prg=Prg.AES_256_CTR,
            streams=tuple(s.spec for s in streams), dp_digest=b"", nonce=bytes(32), deadline_ms=deadline_ms,
        )  # fmt: skip
        vectors = {s.spec.name: np.zeros(s.spec.length, ring_dtype(s.spec.ring_bits)) for s in streams}
        lifetime = clocks.lifetime(seconds)
        machine = SecAggNode(due, identities["a"], vectors, MemoryOnly(), now_ms=lifetime.now_ms)
        session = OpenSession(None, "ab" * 32, machine, lifetime)
        session.step(0, config.to_bytes())
        assert session.is_going_on
        return session

    return begin


@pytest.mark.parametrize("shift_ms", [0, -250_000, -10 * DAY_MS])
def test_a_clock_that_is_put_back_gives_no_time(clocks, opened, shift_ms):
    session = opened(3600.0, NOW + 60_000)
    clocks.own_s += 59
    clocks.shift_ms = shift_ms
    assert session.left_s == pytest.approx(1, abs=0.01)
    clocks.own_s += 2
    assert session.left_s <= 0
    with pytest.raises(SecAggError, match="^DEADLINE: "):
        session.step(1, b"")


def test_a_clock_that_stands_still_gives_no_time(clocks):
    stands = Lifetime(3600.0, lambda: NOW, lambda: clocks.own_s)
    clocks.own_s += 61
    assert stands.now_ms() == NOW + 61_000
    assert stands.left_s(NOW + 60_000) == pytest.approx(-1, abs=0.01)


def test_a_deadline_that_is_days_away_does_not_count(clocks, opened):
    session = opened(100.0, NOW + 6 * DAY_MS)
    clocks.own_s += 99
    clocks.shift_ms = -250_000
    assert session.left_s == pytest.approx(1, abs=0.01)
    clocks.own_s += 2
    with pytest.raises(SecAggError, match="^DEADLINE: ") as fault:
        session.step(1, b"")
    session.abort(fault.value)
    assert session.machine.state is NodeState.ABORTED
    assert not session.is_going_on


def test_a_clock_that_is_ahead_ends_it(clocks, opened):
    session = opened(3600.0, NOW + 60_000)
    clocks.shift_ms = 60_000
    assert session.left_s <= 0
    with pytest.raises(SecAggError, match="^DEADLINE: "):
        session.step(1, b"")


def test_before_there_is_a_deadline(clocks):
    lifetime = clocks.lifetime(10.0)
    clocks.own_s += 4
    assert lifetime.left_s(None) == pytest.approx(6)


@pytest.mark.parametrize("exchange_s", [60.0, 86_400.0])
@pytest.mark.parametrize("nodes", [3, 64])
@pytest.mark.parametrize("nbytes", [8, 8_000_000])
def test_what_an_honest_coordinator_gives_is_less(exchange_s, nodes, nbytes):
    """Also with the longest legs that it can be set to, and room for one upload at a time."""
    (most,) = [m.le for m in LimitSettings.model_fields["leg_seconds"].metadata if hasattr(m, "le")]
    times = Times(exchange_s, short=float(most))
    in_all = times.in_all(nbytes * Buffers(1).turns(nodes, nbytes))
    assert in_all <= longest_s(exchange_s, nbytes, nodes) < LONGEST_MS / 1000


def test_no_plan_makes_it_longer_than_a_week():
    assert longest_s(31_536_000.0, 1 << 30, 64) == LONGEST_MS / 1000
