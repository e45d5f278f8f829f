"""Noise is what it claims to be, on the grid where it should be, and cannot be repeated; samples are Poisson's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from fedsecure.errors import ConfigError
from fedsecure.privacy.noise import FRACTION_BITS, noise_source

#: What is drawn here has no seed: a right sampler fails one run in a million.
LEAST_P = 1e-9
SECRET = ("csprng", "discrete")


@pytest.fixture(autouse=True)
def global_generator_is_left_alone():
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


def gaussian_p(samples, bins=64):
    """p of the chi-square test for N(0, 1), in bins of equal probability."""
    edges = stats.norm.ppf(np.arange(1, bins) / bins)
    counts = np.bincount(np.searchsorted(edges, samples), minlength=bins)
    return stats.chisquare(counts).pvalue


def drawn(kind, count=200_000, sensitivity=0.5, sigma=3.0, at=7.25):
    sums = [torch.full((count // 2, 1), at, dtype=torch.float64), torch.full((count // 2,), at, dtype=torch.float64)]
    noisy = noise_source(kind).add(sums, sensitivity=sensitivity, sigma=sigma)
    assert [n.shape for n in noisy] == [s.shape for s in sums]
    return (torch.cat([n.flatten() for n in noisy]).numpy() - at) / (sensitivity * sigma)


@pytest.mark.parametrize("kind", ["csprng", "discrete", "torch"])
def test_noise_is_gaussian_of_the_standard_deviation_asked_for(kind):
    z = drawn(kind)
    assert gaussian_p(z) > LEAST_P
    assert gaussian_p(z * 1.03) < LEAST_P, "the test is blind to three per cent more"
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.02


def test_discrete_noise_gives_points_of_the_grid_and_counts_the_rounding():
    d, sensitivity = 40_000, 0.3
    grid = sensitivity * 2.0**-FRACTION_BITS
    sums = [torch.linspace(-3, 3, d, dtype=torch.float64)]
    (noisy,) = noise_source("discrete").add(sums, sensitivity=sensitivity, sigma=1e-4)
    points = noisy.numpy() / grid
    assert np.abs(points - np.rint(points)).max() < 1e-6
    steps = 1e-4 * (2**FRACTION_BITS + np.sqrt(d))
    noise = np.rint(points) - np.rint(sums[0].numpy() / grid)
    assert noise.std() == pytest.approx(steps, rel=0.03)


def test_discrete_noise_below_its_grid_is_refused():
    with pytest.raises(ConfigError, match="outside what can be sampled"):
        noise_source("discrete").add([torch.zeros(3)], sensitivity=1.0, sigma=1e-8)


@pytest.mark.parametrize("kind", SECRET)
def test_a_seeded_pytorch_gives_other_noise_each_time(kind):
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        source = noise_source(kind)
        noisy = source.add([torch.zeros(50)], sensitivity=1.0, sigma=1.0)[0].tolist()
        found.append((noisy, source.sample(200, 0.5).tolist(), source.count(np.full(40, 50), sigma=10.0).tolist()))
    assert all(one != other for one, other in zip(*found, strict=True))
    with pytest.raises(ConfigError, match="accepts no seed"):
        noise_source(kind, 5)


@pytest.mark.parametrize("seed", [None, 5])
def test_the_noise_of_pytorch_is_repeated_by_its_seed(seed):
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        source = noise_source("torch", seed)
        noisy = source.add([torch.zeros(50)], sensitivity=1.0, sigma=1.0)[0].tolist()
        found.append((noisy, source.sample(200, 0.5).tolist(), source.count(np.full(40, 50), sigma=10.0).tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["csprng", "discrete", "torch"])
def test_tensors_keep_their_shape_and_dtype_and_are_not_written_to(kind):
    sums = [torch.ones(2, 3), torch.ones(()), torch.ones(0, 4, dtype=torch.float64)]
    noisy = noise_source(kind).add(sums, sensitivity=1.0, sigma=1.0)
    assert [(n.shape, n.dtype) for n in noisy] == [(s.shape, s.dtype) for s in sums]
    assert all((s == 1).all() for s in sums)
    assert not torch.equal(noisy[0], sums[0])


@pytest.mark.parametrize("kind", ["csprng", "discrete", "torch"])
def test_samples_are_poisson(kind):
    source, n, q, draws = noise_source(kind), 60, 0.3, 4000
    taken = np.zeros((draws, n), dtype=bool)
    for row in taken:
        row[source.sample(n, q)] = True
    assert (stats.binomtest(int(taken.sum()), draws * n, q).pvalue) > LEAST_P
    per_record = taken.sum(axis=0)
    assert stats.chisquare(per_record, np.full(n, per_record.mean())).pvalue > LEAST_P
    sizes = np.bincount(taken.sum(axis=1), minlength=n + 1)[8:29]
    expected = stats.binom.pmf(np.arange(8, 29), n, q)
    assert stats.chisquare(sizes, expected * sizes.sum() / expected.sum()).pvalue > LEAST_P
    both = (taken[:, :-1] & taken[:, 1:]).sum()
    assert abs(both - draws * (n - 1) * q * q) < 8 * np.sqrt(draws * (n - 1) * q * q)
    again = (taken[:-1] & taken[1:]).sum()
    assert abs(again - (draws - 1) * n * q * q) < 8 * np.sqrt((draws - 1) * n * q * q)


@pytest.mark.parametrize("kind", SECRET)
def test_a_rate_of_one_takes_all_and_others_are_exact_to_the_last_bit(kind, monkeypatch):
    source = noise_source(kind)
    assert source.sample(7, 1.0).tolist() == list(range(7))
    assert source.sample(0, 0.5).tolist() == []
    half = 1 << 63
    monkeypatch.setattr(
        "fedsecure.privacy.noise.random_words", lambda n: np.array([half - 1, half, 0, 2**64 - 1], np.uint64)[:n]
    )
    assert source.sample(4, 0.5).tolist() == [0, 2]
    for q in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="sampling rate"):
            source.sample(4, q)


@pytest.mark.parametrize("kind", ["csprng", "discrete", "torch"])
def test_counts_get_whole_noise(kind):
    counts = np.full((4, 5000), 50)
    noisy = noise_source(kind).count(counts, sigma=10.0)
    assert noisy.shape == counts.shape
    assert noisy.dtype == np.int64
    assert (noisy - 50).std() == pytest.approx(10.0, rel=0.05)
    assert abs((noisy - 50).mean()) < 0.5
