"""Every shadow is the target once, with the others as its references: the scores of all attacks on it.

The combined attack (A6) is the primary endpoint: a logistic regression over the other attacks' scores, fitted on the
other shadows, whose splits the auditor knows, and applied once to the target. To choose the best attack on the target
would be the commonest way to a false finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from fedsecure.models import Parameters, outputs
from fedsecure.models.network import Network
from fedsecure_attacks.embedding import CHUNK, pixels
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.likelihood import GROUPS, image_likelihood
from fedsecure_attacks.images.neighbour import distances
from fedsecure_attacks.images.tracing import mean_tracing
from fedsecure_attacks.images.trained import STEPS, margins, train_on
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.splits import Mask
from fedsecure_attacks.statistics.calibration import against_others
from fedsecure_attacks.statistics.scores import Floats

__all__ = [
    "LEAST_SHADOWS",
    "PRIMARY",
    "AnyShadow",
    "Attacked",
    "Besides",
    "Scored",
    "attack_shadows",
    "combine",
    "score_shadows",
]

#: The endpoint of the mechanism audit.
PRIMARY = "combined"
#: The same from condensed images alone, where more is seen: mean logits do not depend on the number of images.
IMAGES_ONLY = "combined-images"
_NOT_IMAGES = ("mean-logits", "soft-labels")
#: Fewer shadows than this calibrate nothing.
LEAST_SHADOWS = 4


class AnyShadow(Protocol):
    """A condensation, or a whole federated run."""

    @property
    def released(self) -> Labelled:
        """The last set."""
        ...

    @property
    def inside(self) -> Mask:
        """Which records of the pool it was made from (n,)."""
        ...

    @property
    def residual(self) -> float:
        """How well the means match."""
        ...

    @property
    def steps(self) -> int:
        """That were done."""
        ...

    def counts(self, pool: Labelled) -> Mapping[int, int]:
        """Records of each class that were in."""
        ...


#: Further attacks on a target, with the others as references: name -> scores (n,).
Besides = Callable[[AnyShadow, Sequence[AnyShadow]], Mapping[str, Floats]]


@dataclass(frozen=True, eq=False)
class Scored:
    """``scores`` of the pool's records (n,) by attack, and which were ``inside`` the target."""

    scores: Mapping[str, Floats]
    inside: Mask


@dataclass(frozen=True, eq=False)
class Attacked:
    """``targets``: each shadow in turn. ``unseen``: scores of the same records against each set that was made from
    other people. ``accuracy``: of the models trained on the shadows (R,), on held-out records, where there are some."""

    targets: Sequence[Scored]
    unseen: Sequence[Mapping[str, Floats]]
    accuracy: Sequence[float]


def score_shadows(
    pool: Labelled,
    shadows: Sequence[AnyShadow],
    population: Labelled,
    frames: Mapping[str, Frame],
    seed: int,
    *,
    with_models: bool,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Scored]:
    """Scores with each shadow as the target. ``frames``: "networks" and "pixels", of ``population``, who are no
    candidates. Raises ``ValueError`` with fewer than ``LEAST_SHADOWS``."""
    return list(
        attack_shadows(pool, shadows, population, frames, seed, with_models=with_models, progress=progress).targets
    )


def attack_shadows(
    pool: Labelled,
    shadows: Sequence[AnyShadow],
    population: Labelled,
    frames: Mapping[str, Frame],
    seed: int,
    *,
    with_models: bool,
    strangers: Sequence[AnyShadow] = (),
    test: Labelled | None = None,
    besides: Besides | None = None,
    model_steps: int = STEPS,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Attacked:
    """As ``score_shadows``. ``strangers``: sets made in the same way from people who are not in the pool: references of
    the attacker who knows no candidate, and, as targets, sets of which nothing can be told."""
    if len(shadows) < LEAST_SHADOWS:
        raise ValueError(f"{len(shadows)} shadows (at least {LEAST_SHADOWS})")
    work = _Work.of(
        pool, shadows, strangers, population, frames, besides, seed if with_models else None, test, model_steps
    )
    plain = []
    for number in range(len(shadows)):
        plain.append(work.scores(number))
        progress(number + 1, len(shadows) + len(strangers))
    unseen = []
    for number in range(len(strangers)):
        found = work.scores(len(shadows) + number)
        unseen.append({**found, **_combinations(found, plain, [s.inside for s in shadows])})
        progress(len(shadows) + number + 1, len(shadows) + len(strangers))
    targets = []
    for number, scores in enumerate(plain):
        known = [i for i in range(len(shadows)) if i != number]
        combined = _combinations(scores, [plain[i] for i in known], [shadows[i].inside for i in known])
        targets.append(Scored({**scores, **combined}, shadows[number].inside))
    return Attacked(targets, unseen, work.accuracy)


@dataclass(frozen=True, eq=False)
class _Work:
    """What does not depend on the target; of all sets, the shadows first and then the ``strangers`` (S of them):
    distances (S, n) in both spaces, margins (S, n) of the models."""

    pool: Labelled
    shadows: Sequence[AnyShadow]
    strangers: Sequence[AnyShadow]
    population: Labelled
    frames: Mapping[str, Frame]
    besides: Besides | None
    candidates: Candidates = field(repr=False)
    near: Floats = field(repr=False)
    near_pixels: Floats = field(repr=False)
    margins: Floats | None = field(repr=False)
    accuracy: Sequence[float]

    @classmethod
    def of(
        cls,
        pool: Labelled,
        shadows: Sequence[AnyShadow],
        strangers: Sequence[AnyShadow],
        population: Labelled,
        frames: Mapping[str, Frame],
        besides: Besides | None,
        seed: int | None,
        test: Labelled | None,
        model_steps: int,
    ) -> _Work:
        """``seed``: of the models that are trained on each set for ``model_steps``; ``None`` trains none."""
        candidates, embed, sets = Candidates(pool.x, pool.y), frames["networks"].embed, [*shadows, *strangers]
        embedded, raw = embed(candidates.x), pixels(candidates.x)
        near = np.stack([distances(s.released, candidates, embedded, embed) for s in sets])
        near_pixels = np.stack([distances(s.released, candidates, raw, pixels) for s in sets])
        found, accuracy = [], []
        for number, one in enumerate(sets if seed is not None else ()):
            assert seed is not None
            classes = max(2, int(max(candidates.y.max(), population.y.max())) + 1)
            trained = train_on(one.released, classes, seed, model_steps)
            found.append(margins(*trained, candidates.x, candidates.y))
            if test is not None and number < len(shadows):
                accuracy.append(_accuracy(*trained, test))
        stacked = np.stack(found) if found else None
        return cls(
            pool, shadows, strangers, population, frames, besides, candidates, near, near_pixels, stacked, accuracy
        )

    def scores(self, target: int) -> dict[str, Floats]:
        """Of every record against set ``target``, with all shadows but itself as references."""
        one = [*self.shadows, *self.strangers][target]
        others = [s for i, s in enumerate(self.shadows) if i != target]
        strangers = [s.released for i, s in enumerate(self.strangers) if i + len(self.shadows) != target]
        counts = one.counts(self.pool) if target < len(self.shadows) else others[0].counts(self.pool)
        seen = Outsider(one.released, self.population, counts)
        out = np.zeros(self.near.shape, np.bool_)  # (S, n): who was in none of the references
        for i, shadow in enumerate(self.shadows):
            out[i] = ~shadow.inside & (i != target)
        networks, raw, candidates = self.frames["networks"], self.frames["pixels"], self.candidates
        groups = [image_likelihood(seen, candidates, raw, group) for group in GROUPS]
        found = {
            "mean-tracing": mean_tracing(seen, candidates, networks),
            "mean-tracing-references": mean_tracing(seen, candidates, networks, [s.released for s in others]),
            "nearest-neighbour": -self.near[target],
            "nearest-neighbour-pixels": -self.near_pixels[target],
            "nearest-neighbour-calibrated": -against_others(self.near, out, target),
            "image-likelihood": np.asarray(np.max(groups, axis=0)),
        }
        if len(self.strangers) > 1:  # one of them alone may be the target
            found["mean-tracing-disjoint"] = mean_tracing(seen, candidates, networks, strangers)
        if self.margins is not None:
            found["loss"] = self.margins[target]
            found["lira"] = against_others(self.margins, out, target, pooled=True)
        if self.besides is not None:
            found |= self.besides(one, others)
        return found


@torch.no_grad()
def _accuracy(network: Network, w: Parameters, test: Labelled) -> float:
    """Share of ``test`` whose likeliest class is its own."""
    right = 0
    for at in range(0, len(test), CHUNK):
        logits = outputs(network, w, torch.tensor(test.x[at : at + CHUNK]))[1]
        right += int((logits.argmax(dim=1).numpy() == test.y[at : at + CHUNK]).sum())
    return right / len(test)


def _combinations(
    target: Mapping[str, Floats], known: Sequence[Mapping[str, Floats]], inside: Sequence[Mask]
) -> dict[str, Floats]:
    found = {PRIMARY: combine(target, known, inside)}
    images = [name for name in target if not name.startswith(_NOT_IMAGES)]
    if len(images) < len(target):
        found[IMAGES_ONLY] = combine({name: target[name] for name in images}, known, inside)
    return found


def combine(target: Mapping[str, Floats], known: Sequence[Mapping[str, Floats]], inside: Sequence[Mask]) -> Floats:
    """The regression's score for ``target``, fitted on the ``known`` shadows, whose splits ``inside`` are."""
    names = sorted(target)
    y = np.concatenate(list(inside))
    if y.all() or not y.any():
        return np.zeros(len(inside[0]))
    x = np.concatenate([_table(one, names) for one in known])
    model = LogisticRegression(C=1.0, max_iter=500).fit(x, y)
    return np.asarray(model.decision_function(_table(target, names)))


def _table(scores: Mapping[str, Floats], names: Sequence[str]) -> Floats:
    """Standardised scores (n, attacks)."""
    columns = np.stack([scores[name] for name in names], axis=1)
    return np.asarray((columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-12))
