"""How often the records are asked is in [privacy], and both the policy and the words of a plan go by that."""

import pytest

from fedsecure.errors import ConfigError
from fedsecure.methods import build_method
from fedsecure.policy import Policy
from fedsecure_node.plans.departures import departure_lines
from fedsecure_node.plans.describe import describe

ASKED = ("condensation.fresh_queries", "condensation.max_networks")


@pytest.mark.parametrize(
    ("privacy", "method", "faults"),
    [
        ({"networks": 20}, {}, []),
        ({"networks": 21}, {}, ["condensation.max_networks: 21 networks a round (allowed: <= 20)"]),
        ({"networks": 3}, {"resample": "step", "real_means": "batch", "steps": 100}, []),
        (
            {"kind": "per-step"},
            {},
            [
                "condensation.fresh_queries: the records are asked anew at every step: privacy.kind 'per-step' "
                "(allowed: 'release')"
            ],
        ),
    ],
)
def test_a_policy_goes_by_the_networks_of_the_release(make_plan, privacy, method, faults):
    policy = Policy.model_validate({"format": 1}, strict=False)
    found = policy.violations(make_plan("fedaf", privacy, **method))
    assert [fault for fault in found if fault.startswith(ASKED)] == faults


def test_the_plan_sheet_counts_the_networks_of_the_release(make_plan):
    plan = make_plan("fedaf", {"networks": 7})
    (line,) = (line for line in describe(plan, None, build_method(plan)) if line.startswith("computed here"))
    assert line.endswith("in 6 steps on 7 networks, starting from noise")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "release",
            {
                "steps": "it changes how the images are fitted, not how often the records are asked",
                "real_batch": "no effect: how the records are asked is in [privacy]",
                "real_means": "no effect: how the records are asked is in [privacy]",
                "resample": "no effect: how the records are asked is in [privacy]",
            },
        ),
        (
            "per-step",
            {
                "steps": "with [privacy] of this kind the records are asked once at every step, each time with noise",
                "real_means": "no effect: how the records are asked is in [privacy]",
                "resample": "it changes how the images are fitted, not how often the records are asked",
            },
        ),
    ],
)
def test_departures_do_not_speak_of_questions_that_are_not_asked(make_plan, kind, said):
    plan = make_plan("feddm", {"kind": kind}, steps=7, real_batch=9, real_means="batch", resample="step")
    lines = {line.split()[1].removeprefix("method."): line.split(" - ", 1)[1] for line in departure_lines(plan)}
    for key, words in said.items():
        assert lines[key] == words


@pytest.mark.parametrize("name", ["fedaf", "feddm"])
def test_features_are_not_projected_to_more_than_there_are(make_plan, name):
    build_method(make_plan(name, {"projection": 16}))
    with pytest.raises(ConfigError, match="privacy.projection 17 is more than the 16 features"):
        build_method(make_plan(name, {"projection": 17}))
