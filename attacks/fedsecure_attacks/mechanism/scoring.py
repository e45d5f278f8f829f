"""Every shadow is the target once, with the others as its references: the scores of all attacks on it.

The combined attack (A6) is the primary endpoint: a logistic regression over the other attacks' scores, fitted on the
other shadows, whose splits the auditor knows, and applied once to the target. To choose the best attack on the target
would be the commonest way to a false finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression

from fedsecure_attacks.embedding import pixels
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.likelihood import GROUPS, image_likelihood
from fedsecure_attacks.images.neighbour import distances
from fedsecure_attacks.images.tracing import mean_tracing
from fedsecure_attacks.images.trained import margins, train_on
from fedsecure_attacks.mechanism.shadows import Shadow
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["PRIMARY", "Scored", "score_shadows"]

#: The endpoint of the mechanism audit.
PRIMARY = "combined"
#: Fewer shadows than this calibrate nothing.
LEAST_SHADOWS = 4


@dataclass(frozen=True, eq=False)
class Scored:
    """``scores`` of the pool's records (n,) by attack, and which were ``inside`` the target."""

    scores: Mapping[str, Floats]
    inside: np.ndarray


def score_shadows(
    pool: Labelled,
    shadows: Sequence[Shadow],
    population: Labelled,
    frames: Mapping[str, Frame],
    seed: int,
    *,
    with_models: bool,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Scored]:
    """Scores with each shadow as the target. ``frames``: "networks" and "pixels", of ``population``, who are no
    candidates. Raises ``ValueError`` with fewer than ``LEAST_SHADOWS``."""
    if len(shadows) < LEAST_SHADOWS:
        raise ValueError(f"{len(shadows)} shadows (at least {LEAST_SHADOWS})")
    candidates = Candidates(pool.x, pool.y)
    parts = _Parts.of(candidates, shadows, frames, seed, with_models)
    plain = []
    for target, shadow in enumerate(shadows):
        plain.append(_one(target, shadow, shadows, pool, population, candidates, frames, parts))
        progress(target + 1, len(shadows))
    return [
        Scored({**scores, PRIMARY: _combined(target, plain, shadows)}, shadows[target].inside)
        for target, scores in enumerate(plain)
    ]


@dataclass(frozen=True, eq=False)
class _Parts:
    """What does not depend on the target: distances (R, n) in both spaces, margins (R, n) of the models."""

    near: Floats
    near_pixels: Floats
    margins: Floats | None

    @classmethod
    def of(
        cls, candidates: Candidates, shadows: Sequence[Shadow], frames: Mapping[str, Frame], seed: int, models: bool
    ) -> _Parts:
        embed = frames["networks"].embed
        embedded, raw = embed(candidates.x), pixels(candidates.x)
        near = np.stack([distances(s.released, candidates, embedded, embed) for s in shadows])
        near_pixels = np.stack([distances(s.released, candidates, raw, pixels) for s in shadows])
        classes = max(2, int(candidates.y.max()) + 1)
        found = [margins(*train_on(s.released, classes, seed), candidates.x, candidates.y) for s in shadows if models]
        return cls(near, near_pixels, np.stack(found) if found else None)


def _one(
    target: int,
    shadow: Shadow,
    shadows: Sequence[Shadow],
    pool: Labelled,
    population: Labelled,
    candidates: Candidates,
    frames: Mapping[str, Frame],
    parts: _Parts,
) -> dict[str, Floats]:
    seen = Outsider(shadow.released, population, shadow.counts(pool))
    others = [s.released for i, s in enumerate(shadows) if i != target]
    out = np.stack([~s.inside for s in shadows])  # (R, n)
    out[target] = False
    groups = [image_likelihood(seen, candidates, frames["pixels"], group) for group in GROUPS]
    found = {
        "mean-tracing": mean_tracing(seen, candidates, frames["networks"]),
        "mean-tracing-references": mean_tracing(seen, candidates, frames["networks"], others),
        "nearest-neighbour": -parts.near[target],
        "nearest-neighbour-pixels": -parts.near_pixels[target],
        "nearest-neighbour-calibrated": -_against(parts.near, out, target),
        "image-likelihood": np.asarray(np.max(groups, axis=0)),
    }
    if parts.margins is not None:
        found["loss"] = parts.margins[target]
        found["lira"] = _against(parts.margins, out, target, pooled=True)
    return found


def _against(values: Floats, out: np.ndarray, target: int, *, pooled: bool = False) -> Floats:
    """``values[target]`` (n,) standardised by the shadows that a record was not in; ``pooled``: one variance for all,
    which with fewer than 64 references is the steadier one. Records that were in all others get the mean of all."""
    count = out.sum(axis=0)  # (n,)
    base = np.where(out, values, 0.0)
    mean = np.where(count > 0, base.sum(axis=0) / np.maximum(count, 1), values.mean())
    squares = np.where(out, (values - mean) ** 2, 0.0)
    every = float(squares.sum() / max(1, int(count.sum()) - values.shape[1]))
    own = squares.sum(axis=0) / np.maximum(count - 1, 1)
    variance = (
        np.full(len(mean), every) if pooled else np.where(count > 2, (own * count + every * 2) / (count + 2), every)
    )
    return np.asarray((values[target] - mean) / np.sqrt(np.maximum(variance, 1e-12)))


def _combined(target: int, plain: Sequence[Mapping[str, Floats]], shadows: Sequence[Shadow]) -> Floats:
    """The regression's score for the target, fitted on all other shadows."""
    names = sorted(plain[target])
    known = [i for i in range(len(shadows)) if i != target]

    def table(index: int) -> Floats:
        columns = np.stack([plain[index][name] for name in names], axis=1)  # (n, attacks)
        return np.asarray((columns - columns.mean(axis=0)) / (columns.std(axis=0) + 1e-12))

    x = np.concatenate([table(i) for i in known])
    y = np.concatenate([shadows[i].inside for i in known])
    if y.all() or not y.any():
        return np.zeros(len(shadows[target].inside))
    model = LogisticRegression(C=1.0, max_iter=500).fit(x, y)
    return np.asarray(model.decision_function(table(target)))
