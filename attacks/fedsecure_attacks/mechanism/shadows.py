"""Shadows: sets condensed from random halves of the pool, by the loop that nodes use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from fedsecure.condensation.initial import initial_images
from fedsecure.condensation.loop import Draw, Matcher, match, record_matcher
from fedsecure.condensation.matching import squared_distance
from fedsecure.condensation.means import ClassMeans, ClassRecords
from fedsecure.errors import AuditError
from fedsecure.method import ClientContext
from fedsecure.models import Network, Parameters, draw_parameters
from fedsecure.randomness import derive_seed, torch_generator
from fedsecure.tensors import Array
from fedsecure_attacks.embedding import family
from fedsecure_attacks.mechanism.noisy import NoisyMatching, noisy_matching
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.residual import MOST_LONGER, matching_residual
from fedsecure_attacks.splits import Mask

__all__ = ["NAMES", "Shadow", "make_shadow", "pack", "unpack"]

#: How often in ``steps`` a setting with a residual is looked at.
LOOKS = 5


@dataclass(frozen=True, eq=False)
class Shadow:
    """``released``: the condensed set. ``inside`` (n,): which records of the pool it was made from. ``residual``: mean
    over fresh networks and classes of ||mean of records - mean of images||^2, in features scaled to their dimension.
    ``steps`` that were done."""

    released: Labelled
    inside: Mask = field(repr=False)
    residual: float
    steps: int

    def counts(self, pool: Labelled) -> Mapping[int, int]:
        """Records of each class that were in."""
        return pool.counts(self.inside)


#: The arrays of a shadow as it is kept.
NAMES = ("x", "y", "about")


def pack(shadow: Shadow) -> dict[str, Array]:
    """``x``, ``y``, and ``about``: residual and steps."""
    about = np.array([shadow.residual, shadow.steps], np.float64)
    return {"x": shadow.released.x, "y": shadow.released.y, "about": about}


def unpack(arrays: Mapping[str, Array], inside: Mask, number: int) -> Shadow:
    """What ``pack`` packed. Raises ``AuditError`` or ``ValueError`` when it is not that."""
    residual, steps = arrays["about"].tolist()
    return Shadow(Labelled(f"shadow {number}", arrays["x"], arrays["y"]), inside, residual, int(steps))


def make_shadow(pool: Labelled, inside: Mask, setting: Setting, seed: int, number: int) -> Shadow:
    """Condense the records that are in. The same arguments give the same set, bit for bit, on one machine. Raises
    ``AuditError`` when no class has any record."""
    ours = pool.take(inside)
    held = tuple(np.unique(ours.y).tolist())
    if not held:
        raise AuditError(f"{pool.name}: split {number} has no record in any class")
    records = ClassRecords(held, tuple(torch.tensor(ours.x[ours.y == c]) for c in held))
    network = family(pool.x.shape[1:], max(2, int(pool.y.max()) + 1), setting.width)
    noisy = noisy_matching(setting, network, records, pool.x.shape[1:], derive_seed(seed, "noisy shadow", number))
    if noisy is not None:
        records = noisy.records
        held = records.held
    images = torch.stack(
        [
            initial_images(setting.init, setting.init_n, setting.ipc, group, torch_generator(seed, "start", number, c))
            for c, group in zip(held, records.records, strict=True)
        ]
    )
    images, steps = _condensed(setting, network, records, noisy, images, seed, number)
    residual = matching_residual(network, records, images, seed)
    flat = images.flatten(0, 1).numpy().astype(np.float32)
    labels = np.repeat(np.asarray(held, np.int64), setting.ipc)
    return Shadow(Labelled(f"shadow {number}", flat, labels), inside, residual, steps)


def _condensed(
    setting: Setting,
    network: Network,
    records: ClassRecords,
    noisy: NoisyMatching | None,
    images: torch.Tensor,
    seed: int,
    number: int,
) -> tuple[torch.Tensor, int]:
    """``steps`` steps, and with a residual as many as it takes."""
    each = setting.steps if not setting.residual else min(setting.steps, max(setting.interval, setting.steps // LOOKS))
    method, done, part = setting.method().model_copy(update={"steps": each}), 0, 0
    while True:
        ctx = ClientContext(node="auditor", round=part, seed=derive_seed(seed, "shadow", number))
        matcher: Matcher = (
            record_matcher(method, network, records, _drawing(network, ctx.seed, part), ctx) if noisy is None else noisy
        )
        images = match(method, matcher, images, _loss, ctx).images
        done, part = done + each, part + 1
        if not setting.residual or done >= MOST_LONGER * setting.steps:
            return images, done
        if matching_residual(network, records, images, seed) <= setting.residual:
            return images, done


def _drawing(network: Network, seed: int, part: int) -> Draw:
    def draw(index: int) -> Parameters:
        return draw_parameters(network, torch_generator(seed, "network", part, index))

    return draw


def _loss(real: ClassMeans, synthetic: ClassMeans, step: int) -> dict[str, torch.Tensor]:
    del step
    return {"dm": squared_distance(real.features, synthetic.features)}
