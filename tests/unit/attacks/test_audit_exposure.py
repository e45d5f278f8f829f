"""F1: how far a person stands out is what a mean tells of them."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure_attacks.embedding import pixels
from fedsecure_attacks.images.exposure import exposure, worst_exposed
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.statistics.theory import fixed_person_effect


def test_who_stands_out_is_exposed_most():
    """F1 in rows of five: |z|^2 / n in units of the covariance."""
    generator, lam = np.random.default_rng(0), np.array([4.0, 2.0, 1.0, 0.5, 0.1])
    population = Labelled(
        "p", (generator.normal(size=(8000, 5)) * np.sqrt(lam)).astype(np.float32), np.zeros(8000, int)
    )
    frame = Frame.of(population, pixels, share=1e-6)
    x = (generator.normal(size=(50, 5)) * np.sqrt(lam)).astype(np.float32)
    x[7] *= 6
    members = Labelled("m", x, np.zeros(50, np.int64))
    sizes = exposure(members, frame, {0: 50})
    assert worst_exposed(sizes, 3)[0] == 7
    assert sizes[worst_exposed(sizes)].tolist() == sorted(sizes, reverse=True)[:20]
    for row, size in zip(x[:10].astype(float), sizes, strict=False):
        assert size == pytest.approx(fixed_person_effect(row, lam, 50) ** 2, rel=0.15)
    assert (exposure(members, frame, {0: 50}, tau2=1.0) < sizes).all()
    assert (exposure(Labelled("m", x, np.ones(50, np.int64)), frame, {1: 50}) == 0).all()
