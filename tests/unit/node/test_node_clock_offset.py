"""How the coordinator's clock stands, by round trips that may be slow one way or the other."""

from __future__ import annotations

import pytest

from fedsecure_node.link.clock import ClockOffset


@pytest.mark.parametrize("true", [-400_000, -1, 0, 250, 400_000])
@pytest.mark.parametrize(("there", "back"), [(0, 0), (20_000, 1), (1, 20_000), (300, 300)])
def test_the_truth_is_between_the_bounds(true, there, back):
    sent = 1_000_000
    told, received = sent + there + true, sent + there + back
    offset = ClockOffset(told - received, told - sent)
    assert offset.low <= true <= offset.high
    assert offset.width == there + back
    assert abs(offset.nearest) <= abs(true)
    assert offset.low <= offset.nearest <= offset.high


def test_a_second_round_trip_narrows_them():
    slow, fast = ClockOffset(-1, 20_000), ClockOffset(-2, 3)
    assert slow.narrowed(fast) == fast.narrowed(slow) == ClockOffset(-1, 3)


def test_clocks_that_were_set_in_between():
    slow, fast = ClockOffset(-20_000, 0), ClockOffset(60_000, 60_002)
    assert slow.narrowed(fast) == fast.narrowed(slow) == fast
