"""The one step by which condensation reads records under differential privacy: noisy class means (privacy page, 2.2).

Mechanism A makes one for each network of a round, mechanism B one at every step. What is made of them afterwards
(condensing, mean logits, soft labels) is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from fedsecure.condensation.means import ClassMeans, ClassRecords
from fedsecure.errors import LocalProtocolError
from fedsecure.privacy.context import NoiseSource
from fedsecure.privacy.embedding import Embedding
from fedsecure.privacy.spend import Spend, merged
from fedsecure.tensors import Array

__all__ = ["Allowance", "NoisyMeans", "release", "release_of_sample"]


@dataclass(frozen=True)
class NoisyMeans:
    """Noisy sums over noisy counts, of the held classes in their order, in clipped units; nothing can be written to it.

    ``features``: float32 (H, d). ``logits``: float32 (H, C). ``feature_norm``, ``logit_norm``: C_h, C_f.
    ``seed``: what the noise images, the projection and the augmentations were drawn from; it is not secret.
    """

    features: Array
    logits: Array
    feature_norm: float
    logit_norm: float
    seed: int

    def __post_init__(self) -> None:
        for array in (self.features, self.logits):
            array.flags.writeable = False

    def class_means(self, embedding: Embedding) -> ClassMeans:
        """In the network's own units; ``embedding``: the one that it was released under."""
        rows = torch.cat([torch.tensor(self.features), torch.tensor(self.logits)], dim=1)  # (H, d + C)
        return embedding.unscaled(rows.to(next(iter(embedding.parameters.values())).device))


class Allowance:
    """What was charged for one exchange: so many releases may be made, and no more."""

    def __init__(self, charged: Iterable[Spend]) -> None:
        self._left = list(merged(charged))

    def take(self, sigma: float, q: float) -> None:
        """Use up one release with noise multiplier ``sigma`` over a sample of rate ``q``. Raises
        ``LocalProtocolError`` when none is left that costs as much."""
        for place, spend in enumerate(self._left):
            if spend.sigma <= sigma and spend.q >= q:
                rest = [Spend(spend.sigma, spend.q, spend.steps - 1)] if spend.steps > 1 else []
                self._left[place : place + 1] = rest
                return
        raise LocalProtocolError(
            f"differential privacy: a release with sigma {sigma:g} at rate {q:g} was not paid for",
            hint="nothing of it was computed; please report it",
        )


def release(
    embedding: Embedding,
    records: ClassRecords,
    counts: Sequence[int],
    *,
    sigma: float,
    seed: int,
    noise: NoiseSource,
    allowance: Allowance,
) -> NoisyMeans:
    """One release over all records: for each held class the sum of their clipped vectors plus N(0, sigma^2), over its
    noisy ``counts`` (H,), each at least 1. ``seed``: the embedding's.

    A record moves one row of the sums, by at most 1 (``Embedding.sums``): the sensitivity of all rows together is 1.
    The sums without noise are an argument of the noise source and have no name here: when it returns they are gone.
    Raises ``LocalProtocolError`` when ``allowance`` holds no such release; records are read after that.
    """
    allowance.take(sigma, 1.0)
    return _noisy(embedding, records, [float(n) for n in counts], sigma, seed, noise)


def release_of_sample(
    embedding: Embedding,
    records: ClassRecords,
    counts: Sequence[int],
    *,
    batch: int,
    sigma: float,
    seed: int,
    noise: NoiseSource,
    allowance: Allowance,
) -> NoisyMeans:
    """As ``release``, over a fresh Poisson sample of each class, of ``batch`` records expected: rate batch / count of
    its noisy count, or all records of a class that counts fewer. Classes compose in parallel, so it costs what the
    class with the highest rate costs. Divided by the expected number, not by the sample's own."""
    rates = [min(1.0, batch / n) for n in counts]
    allowance.take(sigma, max(rates))
    groups = []
    for group, q in zip(records.records, rates, strict=True):
        groups.append(group[torch.tensor(noise.sample(len(group), q), dtype=torch.int64, device=group.device)])
    sample = ClassRecords(records.held, tuple(groups))
    return _noisy(embedding, sample, [q * n for q, n in zip(rates, counts, strict=True)], sigma, seed, noise)


def _noisy(
    embedding: Embedding,
    records: ClassRecords,
    divisors: Sequence[float],
    sigma: float,
    seed: int,
    noise: NoiseSource,
) -> NoisyMeans:
    (noisy,) = noise.add([embedding.sums(records)], sensitivity=1.0, sigma=sigma)  # float64 (H, d + C)
    means = noisy / torch.tensor(divisors, dtype=torch.float64, device=noisy.device)[:, None]
    features, logits = (part.to("cpu", torch.float32).numpy().copy() for part in embedding.split(means))
    return NoisyMeans(features, logits, embedding.feature_norm, embedding.logit_norm, seed)
