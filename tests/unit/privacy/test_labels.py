"""What a label says of a release, and what it does not."""

from __future__ import annotations

import math

import pytest

from fedsecure.plan.privacy import DPSGDSettings, PerStepSettings, ReleaseSettings
from fedsecure.privacy.labels import DifferentialPrivacy, Heuristic, NoGuarantee, guarantee_words, label_of

PRIVACY = DPSGDSettings(kind="dp-sgd", sigma=1.0)


@pytest.mark.parametrize(
    "kind", [PRIVACY, ReleaseSettings(kind="release", sigma=1), PerStepSettings(kind="per-step", sigma=1)]
)
@pytest.mark.parametrize("noise", ["csprng", "discrete"])
def test_noise_of_the_operating_system_has_an_epsilon(kind, noise):
    label = label_of(kind.model_copy(update={"noise": noise}), 1.25, 1e-5)
    assert isinstance(label, DifferentialPrivacy)
    raw = label.to_json()
    assert raw == {
        "label": "dp", "epsilon": 1.25, "delta": 1e-5, "unit": "record", "adjacency": "zero-out", "noise": noise,
        "what": label.what, "unprotected": 0,
    }  # fmt: skip
    words = guarantee_words(raw)
    assert words.startswith("(1.25, 1e-05) differential privacy for each record, zero-out adjacency, by noisy sums")
    assert "all that these records paid for" in words


def test_noise_that_can_be_repeated_is_never_called_differential_privacy():
    label = label_of(PRIVACY.model_copy(update={"noise": "torch"}), 1.25, 1e-5)
    assert isinstance(label, Heuristic)
    words = guarantee_words(label.to_json())
    assert "differential privacy" not in words
    assert "DP" not in words
    assert "proves nothing" in words


@pytest.mark.parametrize("spent", [math.inf, math.nan])
def test_an_epsilon_without_bound_is_no_guarantee(spent):
    for noise in ("csprng", "torch"):
        assert isinstance(label_of(PRIVACY.model_copy(update={"noise": noise}), spent, 1e-5), NoGuarantee)
    assert isinstance(label_of(PRIVACY, 1.0, 1.0), NoGuarantee)
