"""A noise multiplier next to nothing, which a plan may have, has no epsilon: that is told, and nothing breaks."""

from __future__ import annotations

import math

import pytest

from fedsecure.plan.shares import SharedNoise
from fedsecure.privacy.accounting import epsilon, quick_epsilon
from fedsecure.privacy.gaussian import combined_mu
from fedsecure.privacy.shares import SharedHistory
from fedsecure.privacy.spend import Spend

#: The least float, others whose square no float holds, one whose square just fits.
TINY = (5e-324, 1e-300, 1e-160, 1.2e-154)


@pytest.mark.parametrize("sigma", TINY)
@pytest.mark.parametrize("q", [1.0, 0.01])
def test_epsilon_is_infinite(sigma, q):
    for history in (
        (Spend(sigma, q, 1),),
        (Spend(sigma, q, 2), Spend(1.1 * sigma if sigma > 1e-320 else 1e-320, q, 2)),  # each fits, their sum does not
        (Spend(sigma, q, 1), Spend(2.0, 0.1, 5), Spend(9.0, 1.0, 1)),
    ):
        assert epsilon(history, 1e-5) == quick_epsilon(history, 1e-5) == math.inf


def test_the_sum_of_what_no_float_holds_is_infinite():
    assert combined_mu([Spend(1e-154, 1.0, 1), Spend(1.1e-154, 1.0, 1)]) == math.inf


def test_a_share_of_next_to_no_noise_has_no_bound():
    history, shared = SharedHistory(), SharedNoise.of(3, None)
    history.add((Spend(5e-324, 1.0, 1),), f"dp-sgd, {shared.mark}")
    assert history.trust(1e-5, epsilon).epsilon_local == math.inf
