"""FedAF and FedDM under differential privacy: what one exchange learns of a node's records, and what is kept of it.

Everything that reads a record here is a release (``privacy.condensation``) with noise of its own, of which an exchange
makes as many as ``privacy.costs.spends`` says were charged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from fedsecure.condensation.loop import Draw, Matcher
from fedsecure.condensation.means import ClassMeans, ClassRecords
from fedsecure.condensation.resampling import is_new_draw
from fedsecure.method import ClientContext
from fedsecure.models import Network, Parameters
from fedsecure.plan import Plan
from fedsecure.plan.methods import CondensationSettings
from fedsecure.plan.privacy import PerStepSettings, ReleaseSettings
from fedsecure.privacy.condensation import Allowance, NoisyMeans, release, release_of_sample
from fedsecure.privacy.context import PrivacyContext
from fedsecure.privacy.costs import spends
from fedsecure.privacy.embedding import Embedding, embedding
from fedsecure.randomness import derive_seed
from fedsecure.tensors import Array, Tensors

__all__ = ["NoisyRound", "Reading", "noisy_round"]


@dataclass(frozen=True, repr=False)
class Reading:
    """What a release of one exchange is made from. ``w``: the downloaded model, ``model`` as it travelled. ``draw``:
    the networks around it. ``records``: of at least one held class."""

    plan: Plan
    settings: CondensationSettings
    exchange: str
    network: Network
    w: Parameters
    model: Tensors
    draw: Draw
    records: ClassRecords
    privacy: PrivacyContext
    ctx: ClientContext

    @property
    def counts(self) -> tuple[int, ...]:
        """Noisy counts of the held classes."""
        return tuple(self.privacy.counts[c] for c in self.records.held)

    def allowance(self) -> Allowance:
        """What was charged for this exchange."""
        privacy = self.privacy
        return Allowance(spends(self.plan, self.exchange, self.ctx.round, privacy.records, privacy.counts))

    def seed(self, index: int) -> int:
        """Of what network ``index`` of the round is embedded with. It tells nothing of the node's own seed."""
        return derive_seed(self.ctx.seed, "embedding", self.ctx.round, index)

    def embedding(self, parameters: Parameters, index: int) -> Embedding:
        """What a record counts as under network ``index`` of the round."""
        settings = self.privacy.settings
        assert isinstance(settings, ReleaseSettings | PerStepSettings)
        return embedding(
            self.network,
            parameters,
            settings,
            self.plan.task.feature_shape,
            self.records.held,
            self.seed(index),
            augment=self.settings.augment == "dsa",
        )


class NoisyRound(Protocol):
    """One exchange of one node, mechanism A or B."""

    def mean_logits(self) -> torch.Tensor:
        """Mean logits of each held class, with noise: (H, C)."""
        ...

    def matcher(self) -> Matcher | None:
        """What condensed images are matched with; ``None`` where the round's release was missed."""
        ...

    def kept(self) -> Tensors:
        """What the rest of the round needs: ``noisy.…``."""
        ...


def noisy_round(reading: Reading, local: Tensors) -> NoisyRound:
    """The plan's mechanism. ``local``: the node's, in which an earlier exchange of the round may have left means."""
    if isinstance(reading.privacy.settings, ReleaseSettings):
        return _Released(reading, reading.privacy.settings, local)
    assert isinstance(reading.privacy.settings, PerStepSettings)
    return _PerStep(reading, reading.privacy.settings)


class _Released:
    """Mechanism A: one release for each network, in the exchange that first needs it; the others find it in ``local``.

    A node that missed that exchange makes none in a later one, which was not charged. An exchange that is computed
    again from the state that it led to makes none either: it finds its own.
    """

    def __init__(self, reading: Reading, settings: ReleaseSettings, local: Tensors) -> None:
        self._embeddings = [reading.embedding(reading.draw(i), i) for i in range(settings.networks)]
        self._reading = reading
        self._means = _unpack(local.under("noisy"), reading)
        if not self._means and reading.exchange != "condensation":
            allowance = reading.allowance()
            self._means = tuple(
                release(
                    under,
                    reading.records,
                    reading.counts,
                    sigma=settings.sigma,
                    seed=reading.seed(i),
                    noise=reading.privacy.noise,
                    allowance=allowance,
                )
                for i, under in enumerate(self._embeddings)
            )

    def mean_logits(self) -> torch.Tensor:
        return torch.stack([means.logits for means in self._class_means()]).mean(dim=0)  # (H, C)

    def matcher(self) -> Matcher | None:
        return _ReleasedMatcher(self._class_means(), self._embeddings) if self._means else None

    def kept(self) -> Tensors:
        return _pack(self._means, self._reading).prefixed("noisy")

    def _class_means(self) -> list[ClassMeans]:
        return [means.class_means(under) for means, under in zip(self._means, self._embeddings, strict=True)]


class _ReleasedMatcher:
    """The networks of a round in turn, one a step."""

    def __init__(self, means: list[ClassMeans], embeddings: list[Embedding]) -> None:
        self._means, self._embeddings = means, embeddings
        self._current = 0

    def real(self, step: int) -> ClassMeans:
        self._current = step % len(self._means)
        return self._means[self._current]

    def synthetic(self, pixels: torch.Tensor) -> ClassMeans:
        return self._embeddings[self._current].means(pixels)


class _PerStep:
    """Mechanism B: noisy means of a fresh Poisson sample at every step; the statistics are a release of all records,
    under the downloaded model itself."""

    def __init__(self, reading: Reading, settings: PerStepSettings) -> None:
        self._reading, self._settings = reading, settings
        self._allowance = reading.allowance()
        self._under: Embedding | None = None
        self._draws = 0

    def mean_logits(self) -> torch.Tensor:
        reading, index = self._reading, -1
        under = reading.embedding(reading.w, index)
        means = release(
            under,
            reading.records,
            reading.counts,
            sigma=self._settings.sigma,
            seed=reading.seed(index),
            noise=reading.privacy.noise,
            allowance=self._allowance,
        )
        return means.class_means(under).logits

    def matcher(self) -> Matcher:
        return self

    def kept(self) -> Tensors:
        return Tensors()

    def real(self, step: int) -> ClassMeans:
        reading, settings = self._reading, self._reading.settings
        if self._under is None or is_new_draw(settings.resample, settings.resample_interval, step):
            self._under = reading.embedding(reading.draw(self._draws), self._draws)
            self._draws += 1
        return release_of_sample(
            self._under,
            reading.records,
            reading.counts,
            batch=self._settings.batch,
            sigma=self._settings.sigma,
            seed=reading.seed(self._draws - 1),
            noise=reading.privacy.noise,
            allowance=self._allowance,
        ).class_means(self._under)

    def synthetic(self, pixels: torch.Tensor) -> ClassMeans:
        assert self._under is not None
        return self._under.means(pixels)


def _pack(means: tuple[NoisyMeans, ...], reading: Reading) -> Tensors:
    """Means of the round's R networks: ``features`` (R, H, d), ``logits`` (R, H, C), ``norms`` (R, 2), ``seeds`` (R,),
    with the ``round``, the SHA-256 of the ``model`` and the ``held`` classes that they are of."""
    if not means:
        return Tensors()
    return Tensors(
        {
            **_names(reading),
            "features": np.stack([m.features for m in means]),
            "logits": np.stack([m.logits for m in means]),
            "norms": np.array([(m.feature_norm, m.logit_norm) for m in means], np.float64),
            "seeds": np.array([m.seed for m in means], np.int64),
        }
    )


def _unpack(kept: Tensors, reading: Reading) -> tuple[NoisyMeans, ...]:
    """The means in ``kept``; none when they are of another round, model or classes."""
    names = _names(reading)
    if not all(name in kept and np.array_equal(kept[name], array) for name, array in names.items()):
        return ()
    columns = zip(kept["features"], kept["logits"], kept["norms"], kept["seeds"], strict=True)
    return tuple(NoisyMeans(f, v, float(norms[0]), float(norms[1]), int(seed)) for f, v, norms, seed in columns)


def _names(reading: Reading) -> dict[str, Array]:
    return {
        "round": np.array([reading.ctx.round], np.int64),
        "model": np.frombuffer(bytes.fromhex(reading.model.digest()), np.uint8),
        "held": np.array(reading.records.held, np.int64),
    }
