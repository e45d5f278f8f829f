"""Closed forms: how well the best attack on a released mean must do (audit page, section 2; F1 to F8).

The release is M = mean of n records + e, e ~ N(0, tau^2 I); ``lam`` (d,) are the eigenvalues of the records'
covariance, ``tau2`` is tau^2, a number or one for each coordinate. Every form is an effect size d', from which the
whole curve follows: TPR(a) = Phi(Phi^-1(a) + d'), which is also the curve of d'-Gaussian differential privacy.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from fedsecure_attacks.statistics.scores import Floats

__all__ = [
    "auc_of", "averaged_images_tpr", "conditional_effect", "dp_effect", "fixed_person_effect", "inner_product_effect",
    "likelihood_effect", "masked_mean_effect", "pool_effect", "reference_noise", "tpr_of",
]  # fmt: skip

Number = float | Floats


def tpr_of(effect: float, fpr: npt.ArrayLike) -> Floats:
    """The true-positive rate at ``fpr``, same shape."""
    return np.asarray(norm.cdf(norm.ppf(np.asarray(fpr, dtype=np.float64)) + effect), dtype=np.float64)


def auc_of(effect: float) -> float:
    """Phi(d' / sqrt 2)."""
    return float(norm.cdf(effect / math.sqrt(2)))


def fixed_person_effect(z: Floats, lam: Floats, n: int, tau2: Number = 0.0) -> float:
    """F1, one person whose difference from the mean is ``z`` (d,), in the eigenbasis."""
    return math.sqrt(float((z**2 / (lam + n * tau2)).sum()) / n)


def likelihood_effect(lam: Floats, n: int, tau2: Number = 0.0) -> float:
    """F2, an average person under the likelihood ratio: sqrt(d_eff / n)."""
    return math.sqrt(float((lam / (lam + n * np.asarray(tau2))).sum()) / n)


def inner_product_effect(lam: Floats, n: int, tau2: Number = 0.0) -> float:
    """F3, an average person under the plain inner product (Homer et al. 2008; Dwork et al. 2015)."""
    return float(lam.sum() / n) / math.sqrt(float((lam * (lam / n + np.asarray(tau2))).sum()))


def reference_noise(lam: Floats, n_ref: int, tau2: Number = 0.0) -> Floats:
    """F4: tau^2 by coordinate when the mean is known from ``n_ref`` other records only."""
    return np.asarray(np.asarray(tau2) + lam / n_ref, dtype=np.float64)


def conditional_effect(m: Floats, lam: Floats, n: int, tau2: Number = 0.0, weight: Floats | None = None) -> float:
    """F5, given the realised release ``m`` = M - mu (d,), of the score z' W m with ``weight`` W (d,; the likelihood
    ratio's if left out): what an implementation is tested against."""
    spread = lam / n + np.asarray(tau2)  # (d,), variance of m
    w = 1.0 / spread if weight is None else weight
    expected = lam / n / spread * m  # E[z | m] of a member
    return float((w * m * expected).sum()) / math.sqrt(float((w * w * lam * m * m).sum()))


def averaged_images_tpr(fpr: float, *, ipc: int, group: int, n: int, d: int, omega2: float = 0.0) -> float:
    """F6: ``ipc`` images, each the average of ``group`` of the ``n`` records (disjoint) with residual variance
    ``omega2`` in each of ``d`` whitened pixels; the attack takes the best image."""
    effect = math.sqrt(d / (1 + group * omega2) / group)
    one: float = float(norm.cdf(norm.ppf(fpr / ipc) + effect))
    share = min(1.0, ipc * group / n)
    return float(share * (1 - (1 - one) * (1 - fpr) ** ((ipc - 1) / ipc)) + (1 - share) * fpr)


def dp_effect(sigma: float, releases: int = 1) -> float:
    """F7: at most sqrt(T) / sigma against T Gaussian releases of noise multiplier ``sigma``, whoever attacks."""
    return math.sqrt(releases) / sigma


def pool_effect(effective_dim: float, n: int, pool: int) -> float:
    """F8: the attacker knows the mean of the ``pool`` of candidates that the ``n`` members were drawn from."""
    return math.sqrt(effective_dim / n / (1 - n / pool))


def masked_mean_effect(effective_dim: float, records: Floats) -> Floats:
    """A plain average of K nodes' means under masks, ``records`` (K,) of each: (K,), for a person of each node."""
    return np.asarray(np.sqrt(effective_dim / records**2 / (1.0 / records).sum()), dtype=np.float64)
