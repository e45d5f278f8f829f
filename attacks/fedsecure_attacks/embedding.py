"""What records are compared in: pixels, or the features of random networks; and whitening there.

Networks of the condensing family, drawn at random, are all that an outsider needs: matching means under many networks
is what condensation does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from fedsecure.errors import AuditError
from fedsecure.models import Parameters, outputs
from fedsecure.models.convnet import ConvNet
from fedsecure.models.initialisation import draw_parameters
from fedsecure.models.mlp import MLP
from fedsecure.models.network import Network
from fedsecure.randomness import torch_generator
from fedsecure_attacks.records import Images
from fedsecure_attacks.statistics.scores import Floats

__all__ = [
    "Embedding",
    "Whitener",
    "blocks",
    "column_scales",
    "family",
    "pixels",
    "random_networks",
    "standardiser",
    "values_of",
]

#: (n, *shape) -> (n, D).
Embedding = Callable[[Images], Floats]
#: Records of one forward pass.
CHUNK = 512
#: Images with a side below this are strips: nothing is left of them after a block of the ConvNet.
NARROW = 4
#: Standard deviations beyond which a table's value is as far as any.
_FAR = 1e6
#: Width of the audit's networks, and how many there are: the audit profile.
WIDTH, NETWORKS = 32, 8
#: Share of the mean eigenvalue that is added to every one.
RIDGE = 0.1


def pixels(x: Images) -> Floats:
    """The records themselves."""
    return x.reshape(len(x), math.prod(x.shape[1:])).astype(np.float64)


def column_scales(population: Images) -> Floats:
    """What the values of a record (d,) are divided by before they are compared: the standard deviation of a table's
    columns, one where a column is constant; one for pixels."""
    if population.ndim != 2:
        return np.ones(int(np.prod(population.shape[1:])))
    spread = pixels(population).std(axis=0)
    return np.where(spread > 0, spread, 1.0)


def values_of(population: Images) -> Embedding:
    """The records themselves, a table's columns on one scale."""
    scales = column_scales(population)
    return lambda x: pixels(x) / scales


def standardiser(population: Images) -> Callable[[Images], Images]:
    """What a network is shown of records (n, *shape): a table's columns without the mean and over the standard
    deviation that ``population`` has, whatever their units; images as they are."""
    if population.ndim != 2:
        return lambda x: x
    mean, scales = pixels(population).mean(axis=0), column_scales(population)
    return lambda x: np.clip((pixels(x) - mean) / scales, -_FAR, _FAR).astype(np.float32)


def family(shape: tuple[int, ...], num_classes: int, width: int = WIDTH) -> Network:
    """A network (on the meta device) for records of ``shape``: the ConvNet of condensation with as many blocks as leave
    4 pixels and more a side, or an MLP for rows and for strips."""
    with torch.device("meta"):
        if len(shape) == 1 or min(shape[1:]) < NARROW:
            return MLP(math.prod(shape), num_classes, (4 * width,), None)
        return ConvNet((shape[0], shape[1], shape[2]), num_classes, blocks(shape), width)


def blocks(shape: tuple[int, ...]) -> int:
    """How many blocks the ConvNet for images of ``shape`` has."""
    side, depth = min(shape[1:]), 1
    while depth < 3 and side // 2 ** (depth + 1) >= 4:
        depth += 1
    return depth


def random_networks(
    shape: tuple[int, ...], num_classes: int, seed: int, count: int = NETWORKS, population: Images | None = None
) -> Embedding:
    """Concatenated features of ``count`` random networks, each scaled to its dimension. ``population``: of a table,
    whose columns are standardised by it. Raises ``AuditError`` for records whose features are not finite."""
    network = family(shape, num_classes)
    drawn = [draw_parameters(network, torch_generator(seed, "embedding", i)) for i in range(count)]
    if population is None:
        return lambda x: _features(network, drawn, x)
    standardised = standardiser(population)
    return lambda x: _features(network, drawn, standardised(x))


def _features(network: Network, drawn: Sequence[Parameters], x: Images) -> Floats:
    parts = []
    with torch.no_grad():
        for at in range(0, max(1, len(x)), CHUNK):
            part = torch.tensor(x[at : at + CHUNK])
            row = [outputs(network, parameters, part)[0].double() for parameters in drawn]
            parts.append(torch.cat(row, dim=1) / np.sqrt(len(drawn)))
    found = np.asarray(torch.cat(parts).numpy())
    if wrong := int((~np.isfinite(found)).any(axis=1).sum()):
        raise AuditError(f"{wrong} of {len(x)} records have values too large for the networks that compare them")
    return found


@dataclass(frozen=True, eq=False)
class Whitener:
    """(Sigma + ridge I)^-1, with Sigma the covariance within classes of some records, kept as its singular vectors:
    there may be far more dimensions than records. ``vectors`` (r, D), ``values`` (r,) eigenvalues, ``ridge`` > 0."""

    vectors: Floats = field(repr=False)
    values: Floats = field(repr=False)
    ridge: float

    @classmethod
    def fit(cls, centred: Floats, *, share: float = RIDGE) -> Whitener:
        """From records (n, D) without their class means; the ridge is ``share`` of the mean eigenvalue."""
        _, singular, vectors = np.linalg.svd(centred, full_matrices=False)
        values = singular**2 / max(1, len(centred) - 1)  # (r,)
        mean = float(values.sum()) / centred.shape[1]
        return cls(vectors, values, max(share * mean, 1e-12))

    def apply(self, z: Floats, more: float = 0.0) -> Floats:
        """(Sigma + (ridge + ``more``) I)^-1 z for rows z (n, D)."""
        ridge = self.ridge + more
        along = z @ self.vectors.T  # (n, r)
        return np.asarray((z - (along * (self.values / (self.values + ridge))) @ self.vectors) / ridge)
