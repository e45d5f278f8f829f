"""A0, the copy scan: people who were released as they are, or nearly so (audit page, A0).

Every candidate is compared with every released record in pixels, as it is and under mirror images, one-pixel shifts and
small changes of brightness; for sets that start from averages, with the averages of two and three candidates, too. What
it finds is judged by the exact tail test, never by an area under the curve: ten copies among three hundred leave that
at one half.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedsecure_attacks.embedding import column_scales
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Images
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["average_scan", "copy_scan", "exact_copies", "looks", "nearest", "normed"]

#: Candidates nearest to a released record among which averages are looked for.
NEAREST = 24
#: Rows compared at a time, so that no table of all pairs of values is made.
BLOCK = 1 << 22
#: A picture whose values are no further from their mean, in all, is constant.
FLAT = 1e-5


def looks(x: Images) -> Iterator[Images]:
    """Looks of images (n, channels, H, W): as they are, mirrored in both axes, turned by half, and shifted by a pixel
    in four directions; of square ones also by quarter turns, mirrored or not. Rows of a table have one."""
    yield x
    if x.ndim != 4:
        return
    yield x[..., ::-1]
    yield x[..., ::-1, :]
    yield x[..., ::-1, ::-1]
    for axis, step in ((2, 1), (2, -1), (3, 1), (3, -1)):
        yield np.roll(x, step, axis=axis)
    if x.shape[2] == x.shape[3]:
        across = x.swapaxes(2, 3)
        yield from (across, across[..., ::-1], across[..., ::-1, :], across[..., ::-1, ::-1])


def normed(rows: Floats) -> Floats:
    """Rows without their mean, of length one: brightness and contrast do not count. A constant row stays zero."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(np.divide(centred, length, out=np.zeros_like(centred), where=length > FLAT))


def _nearest_shape(own: Floats, rows: Floats) -> Floats:
    """``nearest`` of normed rows among ``rows`` (m, d); infinite where either has no shape: all constants are alike."""
    others = normed(rows)
    shaped = others.any(axis=1)
    if not shaped.any():
        return np.full(len(own), np.inf)
    return np.asarray(np.where(own.any(axis=1), nearest(own, others[shaped]), np.inf))


def nearest(rows: Floats, others: Floats) -> Floats:
    """The least Euclidean distance of each row (n, d) to ``others`` (m, d): (n,)."""
    found = np.empty(len(rows))
    lengths = (others**2).sum(axis=1)
    step = max(1, BLOCK // max(1, len(others)))
    for at in range(0, len(rows), step):
        part = rows[at : at + step]
        squared = (part**2).sum(axis=1)[:, None] - 2 * part @ others.T + lengths
        found[at : at + step] = np.sqrt(np.maximum(squared.min(axis=1), 0.0))
    return found


def exact_copies(seen: Outsider, candidates: Candidates) -> int:
    """Candidates whose values are, bit for bit, those of a released record."""
    released = {np.ascontiguousarray(row).tobytes() for row in seen.released.rows}
    return sum(np.ascontiguousarray(row).tobytes() in released for row in candidates.rows)


def copy_scan(seen: Outsider, candidates: Candidates) -> Floats:
    """Minus the least distance to any released record under any look, both in pixels and, for images, without
    brightness and contrast; the two on one scale (the root mean square of the candidates' own lengths): (n,)."""
    scales = column_scales(seen.population.x)
    own = candidates.rows.astype(np.float64) / scales
    plain = np.full(len(own), np.inf)
    shape = np.full(len(own), np.inf)
    plainly = normed(own)
    for look in looks(seen.released.x):
        rows = look.reshape(len(look), -1).astype(np.float64) / scales
        plain = np.minimum(plain, nearest(own, rows))
        if seen.released.x.ndim == 4:
            shape = np.minimum(shape, _nearest_shape(plainly, rows))
    scale = float(np.sqrt((own**2).sum(axis=1).mean())) or 1.0
    return np.asarray(-np.minimum(plain / scale, shape))


def average_scan(seen: Outsider, candidates: Candidates) -> Floats:
    """Minus the least distance of a released record to an average of two or three candidates of its class, one of them
    this one: (n,). Pairs are sought among the ``NEAREST`` candidates by correlation; the third is the best that is left
    for the best pair (greedy)."""
    scales = column_scales(seen.population.x)
    own = candidates.rows.astype(np.float64) / scales
    found = np.full(len(own), np.inf)
    for s, c in zip(seen.released.rows.astype(np.float64) / scales, seen.released.y, strict=True):
        here = np.flatnonzero(candidates.y == c)
        if len(here) < 2:
            continue
        mean = own[here].mean(axis=0)
        along = (own[here] - mean) @ (s - mean)
        top = here[np.argsort(-along, kind="stable")[:NEAREST]]
        rows = own[top]
        pairs = (rows[:, None] + rows[None]) / 2  # (k, k, d)
        apart = np.linalg.norm(pairs - s, axis=2)
        np.fill_diagonal(apart, np.inf)
        np.minimum.at(found, top, apart.min(axis=1))
        a, b = np.unravel_index(int(apart.argmin()), apart.shape)
        triples = np.linalg.norm((rows[a] + rows[b] + rows) / 3 - s, axis=1)
        triples[[a, b]] = np.inf
        third = int(triples.argmin())
        for index in (a, b, third):
            found[top[index]] = min(found[top[index]], float(triples[third]))
    worst = float(found[np.isfinite(found)].max()) if np.isfinite(found).any() else 0.0
    return np.asarray(-np.where(np.isfinite(found), found, worst))
