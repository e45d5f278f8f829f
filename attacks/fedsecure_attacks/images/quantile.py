"""A6q, a threshold for each record: the score that people like this one who are out stay below (Bertran et al. 2023).

Learnt from references alone by quantile regression on what makes scores large by itself: how unusual the record is. It
needs no other condensed set, so it is what there is when only one was released.
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import QuantileRegressor

from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.records import Candidates
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["unusualness", "with_quantile"]

#: The quantile, and the least references that it can be learnt from.
LEVEL, LEAST = 0.95, 100


def unusualness(frame: Frame, centred: Floats) -> Floats:
    """log |z|_A and log |z| (n, 2)."""
    white = (frame.whitener.apply(centred) * centred).sum(axis=1)
    return np.stack([np.log(white + 1e-12), np.log((centred**2).sum(axis=1) + 1e-12)], axis=1) / 2


def with_quantile(
    scores: Floats, candidates: Candidates, frame: Frame, out_scores: Floats, out_centred: Floats
) -> Floats:
    """``scores`` (n,) less the ``LEVEL`` quantile that references of the same unusualness have. ``out_scores`` (m,) and
    ``out_centred`` (m, D) are theirs; as they are with fewer than ``LEAST`` of them."""
    if len(out_scores) < LEAST:
        return scores
    features = unusualness(frame, out_centred)
    mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-9
    model = QuantileRegressor(quantile=LEVEL, alpha=0.0, solver="highs").fit((features - mean) / spread, out_scores)
    own = unusualness(frame, frame.centred(candidates.x, candidates.y))
    return np.asarray(scores - model.predict((own - mean) / spread))
