"""Sanity case 4: what the product's own mean-tracing reaches against a released mean is what theory (F5) says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedsecure_attacks.embedding import Whitener, pixels
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.tracing import mean_tracing
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.statistics.theory import auc_of, conditional_effect

TAUS = (0.0, 0.05, 0.2)


def labelled(name: str, x: np.ndarray) -> Labelled:
    return Labelled(name, x.astype(np.float32), np.zeros(len(x), np.int64))


def known_frame(d: int, rng: np.random.Generator) -> Frame:
    """People who are standard normal in ``d`` dimensions, and an attacker who knows it."""
    whitener = Whitener(np.zeros((0, d)), np.zeros(0), 1.0)
    return Frame(pixels, {0: np.zeros(d)}, whitener, {0: rng.standard_normal((200, d))})


def attacked(d: int, n: int, taus: tuple[float, ...], runs: int, seed: int) -> np.ndarray:
    """(runs, taus, 2): the area that ``mean_tracing`` reaches and what F5 says of the same release."""
    rng = np.random.default_rng(seed)
    frame, found = known_frame(d, rng), np.empty((runs, len(taus), 2))
    for run in range(runs):
        people, noise = rng.standard_normal((n + 400, d)), rng.standard_normal(d)
        candidates = Candidates(people.astype(np.float32), np.zeros(len(people), np.int64))
        for at, tau in enumerate(taus):
            m = people[:n].mean(axis=0) + tau * noise
            seen = Outsider(labelled("released", m[None]), labelled("reference", people[:0]), {0: n})
            scores = mean_tracing(seen, candidates, frame)
            found[run, at] = (
                auc(Scores.of(scores, np.arange(len(people)) < n)),
                auc_of(conditional_effect(m, np.ones(d), n, tau**2)),
            )
    return found


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("d", [10, 64, 512])
def test_mean_tracing_reaches_what_theory_says(d, n):
    runs = 20 if d == 512 else 40 if n == 200 else 80
    found = attacked(d, n, TAUS, runs, seed=1000 * d + n)
    for at, tau in enumerate(TAUS):
        reached, said = found[:, at].T
        error = float(reached.std(ddof=1)) / math.sqrt(len(reached))
        assert abs(reached.mean() - said.mean()) < max(4 * error, 0.006), (tau, reached.mean(), said.mean())


def test_the_area_falls_to_one_half_as_noise_rises():
    areas = attacked(64, 50, (0.0, 0.05, 0.2, 1.0, 10.0), 40, seed=3)[:, :, 0].mean(axis=0)
    assert (np.diff(areas) < 0).all()
    assert areas[0] > 0.75
    assert areas[-1] == pytest.approx(0.5, abs=0.02)
