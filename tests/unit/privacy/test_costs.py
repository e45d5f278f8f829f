"""What plans cost: exactly the releases that their exchanges make, and how many rounds a budget affords."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from fedsecure.config import validate
from fedsecure.plan import Plan
from fedsecure.privacy.accounting import epsilon
from fedsecure.privacy.costs import affordable_rounds, count_spend, plan_spends, spends
from fedsecure.privacy.spend import Spend, merged

COUNTS = (500, 40, 0)


def plan(method: dict[str, Any], privacy: dict[str, Any] | None, rounds: int = 6) -> Plan:
    raw = {
        "format": 1,
        "name": "p",
        "rounds": rounds,
        "task": {"kind": "image", "classes": ["0", "1", "2"], "shape": [1, 8, 8]},
        "model": {"name": "convnet", "depth": 2},
        "method": method,
        "cohort": {"nodes": ["a", "b", "c"]},
        **({"privacy": privacy} if privacy else {}),
    }
    return validate(Plan, raw, "plan")


def sgd(method: dict[str, Any], **privacy: Any) -> Plan:
    return plan(method, {"kind": "dp-sgd", "sigma": 1.5, "batch": 50, "steps": 7, **privacy})


def test_dp_sgd_pays_for_every_step_at_the_rate_of_all_records() -> None:
    steps = (Spend(1.5, 50 / 540, 7),)
    assert spends(sgd({"name": "fedavg", "local_steps": 1}), "round", 3, 540, COUNTS) == steps
    for method in ({"name": "fedspm"}, {"name": "feddrm"}, {"name": "feddrm", "backbone": "shared"}):
        assert spends(sgd(method), "update", 0, 540, COUNTS) == steps
    assert spends(sgd({"name": "fedspm"}, batch=1000), "update", 0, 540, COUNTS) == (Spend(1.5, 1.0, 7),)


def test_the_number_of_all_records_is_public() -> None:
    counting = sgd({"name": "fedspm", "share_counts": True})
    assert spends(counting, "counts", 0, 540, COUNTS) == ()
    assert plan_spends(counting, 540, COUNTS) == plan_spends(sgd({"name": "fedspm"}), 540, COUNTS)


def test_mixing_weights_are_paid_for_in_the_rounds_that_release_them() -> None:
    explicit = sgd({"name": "fedspm", "parametrisation": "explicit"}, mixing_sigma=8.0, mixing_every=4)
    paid = [Spend(8.0, 1.0, 1) in spends(explicit, "update", round_, 540, COUNTS) for round_ in range(9)]
    assert paid == [True, False, False, False, True, False, False, False, True]
    single = sgd({"name": "fedspm", "parametrisation": "explicit", "components": 1})
    assert spends(single, "update", 0, 540, COUNTS) == (Spend(1.5, 50 / 540, 7),)


RELEASE = {"kind": "release", "sigma": 5.0, "networks": 3}
PER_STEP = {"kind": "per-step", "sigma": 5.0, "batch": 20}


@pytest.mark.parametrize(
    ("method", "privacy", "exchange", "costs"),
    [
        ({"name": "fedaf"}, RELEASE, "statistics", (Spend(5.0, 1.0, 3),)),
        ({"name": "fedaf"}, RELEASE, "condensation", ()),
        ({"name": "fedaf", "sync": "stale"}, RELEASE, "round", (Spend(5.0, 1.0, 3),)),
        ({"name": "feddm"}, RELEASE, "round", (Spend(5.0, 1.0, 3),)),
        ({"name": "fedaf", "steps": 30}, PER_STEP, "statistics", (Spend(5.0, 1.0, 1),)),
        ({"name": "fedaf", "steps": 30}, PER_STEP, "condensation", (Spend(5.0, 0.5, 30),)),
        ({"name": "fedaf", "steps": 30, "sync": "stale"}, PER_STEP, "round", (Spend(5.0, 1.0, 1), Spend(5.0, 0.5, 30))),
        ({"name": "feddm", "steps": 30}, PER_STEP, "round", (Spend(5.0, 0.5, 30),)),
    ],
)
def test_condensation_pays_for_what_reads_records(
    method: dict[str, Any], privacy: dict[str, Any], exchange: str, costs: tuple[Spend, ...]
) -> None:
    asked = plan(method, privacy)
    assert spends(asked, exchange, 2, 540, COUNTS) == costs
    assert spends(asked, exchange, 2, 540, (0, 0, 0)) == ()
    assert spends(asked, exchange, 2, 540, (9, 9, 9)) == ()  # min_count is 10: none is held, so none is read


def test_the_smallest_class_that_is_held_decides_and_no_rate_passes_one() -> None:
    asked = plan({"name": "feddm", "steps": 30}, PER_STEP)
    assert spends(asked, "round", 0, 540, (500, 400, 9)) == (Spend(5.0, 20 / 400, 30),)
    assert spends(asked, "round", 0, 540, (500, 15, 0)) == (Spend(5.0, 1.0, 30),)


def test_a_plan_without_privacy_spends_nothing_and_no_exchange_goes_unknown() -> None:
    plain = plan({"name": "fedavg", "local_steps": 1}, None)
    assert spends(plain, "round", 0, 540, COUNTS) == ()
    assert plan_spends(plain, 540, COUNTS) == ()
    with pytest.raises(ValueError, match="exchange 'update'"):
        spends(sgd({"name": "fedavg", "local_steps": 1}), "update", 0, 540, COUNTS)


@pytest.mark.parametrize(
    "asked",
    [
        sgd({"name": "fedavg", "local_steps": 1}),
        sgd({"name": "fedspm", "parametrisation": "explicit", "share_counts": True}, mixing_every=4),
        plan({"name": "fedaf"}, RELEASE),
        plan({"name": "fedaf", "sync": "stale"}, PER_STEP),
        plan({"name": "feddm"}, PER_STEP),
    ],
    ids=lambda p: p.method.name,
)
@pytest.mark.parametrize("rounds", [None, 0, 1, 5])
def test_a_whole_plan_is_its_exchanges_and_the_counting(asked: Plan, rounds: int | None) -> None:
    from fedsecure.methods import build_method

    total = asked.rounds if rounds is None else rounds
    each = [
        spend
        for round_ in range(total)
        for exchange in build_method(asked).exchanges
        for spend in spends(asked, exchange, round_, 540, COUNTS)
    ]
    assert asked.privacy is not None
    counting = count_spend(asked.privacy)
    assert plan_spends(asked, 540, COUNTS, rounds) == merged([counting, *each])
    assert plan_spends(asked, 540, COUNTS, rounds, counted=True) == merged(each)


@pytest.mark.parametrize("sigma", [1.0, 1.3, 2.0, 3.0, 10.0])
def test_counting_is_within_the_gaussian_that_it_is_charged_as(sigma: float) -> None:
    """The trade-off of the discrete Gaussian is straight between its corners, so these decide."""
    from scipy.special import ndtri

    weights = [math.exp(-k * k / (2 * sigma**2)) for k in range(int(40 * sigma))]
    norm = weights[0] + 2 * math.fsum(weights[1:])
    tail = [math.fsum(weights[k:]) / norm for k in range(int(9 * sigma))]  # P(X >= k)
    scores = [-float(ndtri(p)) for p in tail[1:]]  # of k = 1, 2, …
    told = [2 * scores[0], *(high - low for low, high in pairwise(scores))]  # mu at each corner
    privacy = sgd({"name": "fedspm"}, count_sigma=sigma).privacy
    assert privacy is not None
    assert max(told) <= 1 / count_spend(privacy).sigma
    assert max(told) > 1 / sigma  # as the continuous one it would be charged too little


@pytest.mark.parametrize("cap", [0.2, 1.0, 2.0, 3.0, 4.0, 100.0])
def test_affordable_rounds_against_trying_each(cap: float) -> None:
    asked = sgd({"name": "fedspm", "parametrisation": "explicit"}, mixing_every=3, steps=40)
    history, delta = (Spend(20.0, 1.0, 3),), 1e-4
    tried = [epsilon((*history, *plan_spends(asked, 540, COUNTS, r)), delta) <= cap for r in range(asked.rounds + 1)]
    most = max((r for r, fits in enumerate(tried) if fits), default=0)
    assert affordable_rounds(asked, 540, COUNTS, history, cap, delta) == most


def test_what_was_spent_before_leaves_fewer_rounds() -> None:
    asked = plan({"name": "fedaf"}, {"kind": "release", "sigma": 10.0}, rounds=100)
    fresh = affordable_rounds(asked, 540, COUNTS, (), 2.0, 1e-4)
    later = affordable_rounds(asked, 540, COUNTS, (Spend(10.0, 1.0, 20),), 2.0, 1e-4)
    assert fresh == later + 20
    assert asked.privacy is not None
    counting = (count_spend(asked.privacy),)
    assert affordable_rounds(asked, 540, COUNTS, counting, 2.0, 1e-4, counted=True) == fresh
    assert affordable_rounds(asked, 540, COUNTS, (Spend(1.0, 1.0, 1),), 2.0, 1e-4) == 0
