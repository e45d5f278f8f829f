"""The clock check names how far two clocks are apart."""

from __future__ import annotations

import pytest

from fedsecure.errors import CertificateError
from fedsecure.wire.clock import MAX_CLOCK_SKEW_MS, clock_skew


def test_within_five_minutes_either_way():
    assert MAX_CLOCK_SKEW_MS == 5 * 60 * 1000
    for skew in (0, MAX_CLOCK_SKEW_MS, -MAX_CLOCK_SKEW_MS):
        clock_skew(10**12, 10**12 + skew)


@pytest.mark.parametrize(
    ("skew", "words"),
    [
        (MAX_CLOCK_SKEW_MS + 1, "5 min ahead of ours"),
        (-363_000, "6 min 3 s behind ours"),
        (7_200_000, "2 h ahead of ours"),
        (-(10**12), "11574 d 1 h behind ours"),
    ],
)
def test_beyond_it_is_named(skew, words):
    with pytest.raises(CertificateError, match=f"clock skew: the clock of mayo is {words}") as caught:
        clock_skew(10**12, 10**12 + skew, peer="mayo")
    assert "NTP" in caught.value.hint


def test_a_limit_of_ones_own():
    with pytest.raises(CertificateError, match=r"\(allowed: 500 ms\)"):
        clock_skew(0, 1_000, limit_ms=500)
