"""Mechanism A in a shadow: noisy class sums once for each network, through the product's own release, and nothing of
the records afterwards. The noise is drawn from a seed, so that a shadow can be made again: it is for measuring alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedsecure.condensation.means import ClassMeans, ClassRecords
from fedsecure.errors import AuditError
from fedsecure.models import Network, draw_parameters
from fedsecure.privacy.accounting import default_delta, epsilon
from fedsecure.privacy.condensation import Allowance, release
from fedsecure.privacy.costs import count_spend
from fedsecure.privacy.counting import counted_once, taking_part_counts
from fedsecure.privacy.embedding import Embedding, embedding
from fedsecure.privacy.noise import noise_source
from fedsecure.privacy.spend import Spend
from fedsecure.randomness import derive_seed, torch_generator
from fedsecure_attacks.mechanism.setting import Setting

__all__ = ["NoisyMatching", "accounted_epsilon", "noisy_matching"]


class NoisyMatching:
    """A matcher of noisy ``means`` under their ``embeddings``, one a step in turn. ``records``: of the classes that
    take part by their noisy counts."""

    def __init__(self, means: Sequence[ClassMeans], embeddings: Sequence[Embedding], records: ClassRecords) -> None:
        self.records = records
        self._means, self._embeddings, self._current = means, embeddings, 0

    def real(self, step: int) -> ClassMeans:
        """What was released for the network of ``step``."""
        self._current = step % len(self._means)
        return self._means[self._current]

    def synthetic(self, pixels: torch.Tensor) -> ClassMeans:
        """Means of the condensed images (H, P, *shape) under the network of the step; with gradient."""
        return self._embeddings[self._current].means(pixels)


def noisy_matching(
    setting: Setting, network: Network, records: ClassRecords, shape: Sequence[int], seed: int
) -> NoisyMatching | None:
    """The releases of one shadow; ``None`` for a setting without noise. Classes without any record take no part,
    whatever noise makes of their count. Raises ``AuditError`` when no class takes part."""
    if not setting.sigma:
        return None
    privacy, noise = setting.privacy(), noise_source("torch", derive_seed(seed, "noise"))
    true = np.array([len(group) for group in records.records], np.int64)
    counts = taking_part_counts(counted_once(true, privacy, noise), 1)
    kept = [(c, group, n) for c, group, n in zip(records.held, records.records, counts, strict=True) if n]
    if not kept:
        raise AuditError(
            "by its noisy counts no class of a shadow takes part", hint="a larger pool, or a lower count_sigma"
        )
    held = ClassRecords(tuple(c for c, _, _ in kept), tuple(group for _, group, _ in kept))
    allowance = Allowance([Spend(setting.sigma, 1.0, setting.releases)])
    under, means = [], []
    for index in range(setting.releases):
        parameters = draw_parameters(network, torch_generator(seed, "network", index))
        drawn = derive_seed(seed, "embedding", index)
        under.append(embedding(network, parameters, privacy, shape, held.held, drawn))
        found = release(
            under[-1], held, [n for _, _, n in kept], sigma=setting.sigma, seed=drawn, noise=noise, allowance=allowance
        )
        means.append(found.class_means(under[-1]))
    return NoisyMatching(means, under, held)


def accounted_epsilon(setting: Setting, records: int) -> tuple[float, float]:
    """(epsilon, delta) of one shadow with ``sigma``, at the delta that the ledger takes for so many ``records``."""
    delta = default_delta(records)
    history = (count_spend(setting.privacy()), Spend(setting.sigma, 1.0, setting.releases))
    return epsilon(history, delta), delta
