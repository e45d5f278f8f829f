"""Differentiable siamese augmentation (Zhao and Bilen 2021): one random transform, the same for the records and the
condensed images of a class, through which gradients reach the condensed images.

Each draw picks one of six transforms with DSA's published strengths; all images of a draw undergo the very same one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

__all__ = ["TRANSFORMS", "Augmentation", "draw_augmentation"]

#: The transforms, and what ``numbers`` (three uniform on [0, 1)) mean to each.
TRANSFORMS = ("colour", "shift", "cutout", "flip", "scale", "rotate")

SHIFT = 0.125  # at most this part of a side
SCALE = 1.2  # at most by this factor, up or down
ROTATE = math.radians(15.0)  # at most, either way
CUTOUT = 0.5  # part of a side
BRIGHTNESS, SATURATION, CONTRAST = 1.0, 2.0, 0.5


@dataclass(frozen=True)
class Augmentation:
    """One transform of images (n, channels, H, W), fixed by its name and three numbers in [0, 1)."""

    name: str
    numbers: tuple[float, float, float]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The transformed images, same shape; differentiable in ``x``."""
        return _APPLY[self.name](x, *self.numbers)


def draw_augmentation(generator: torch.Generator) -> Augmentation:
    """One transform, each as likely as another."""
    name = TRANSFORMS[int(torch.randint(len(TRANSFORMS), (1,), generator=generator))]
    a, b, c = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
    return Augmentation(name, (a, b, c))


def _colour(x: torch.Tensor, a: float, b: float, c: float) -> torch.Tensor:
    x = x + BRIGHTNESS * (a - 0.5)
    grey = x.mean(dim=1, keepdim=True)  # (n, 1, H, W)
    x = grey + (x - grey) * (SATURATION * b)
    centre = x.mean(dim=(1, 2, 3), keepdim=True)  # (n, 1, 1, 1)
    return centre + (x - centre) * (c + CONTRAST)


def _shift(x: torch.Tensor, a: float, b: float, _: float) -> torch.Tensor:
    height, width = x.shape[2:]
    down = round((2 * a - 1) * SHIFT * height)
    right = round((2 * b - 1) * SHIFT * width)
    return F.pad(x, (right, -right, down, -down))  # negative padding cuts off what leaves the frame


def _cutout(x: torch.Tensor, a: float, b: float, _: float) -> torch.Tensor:
    height, width = x.shape[2:]
    size_down, size_right = max(1, round(CUTOUT * height)), max(1, round(CUTOUT * width))
    top, left = round(a * height) - size_down // 2, round(b * width) - size_right // 2
    mask = torch.ones(1, 1, height, width, dtype=x.dtype, device=x.device)
    mask[:, :, max(0, top) : max(0, top + size_down), max(0, left) : max(0, left + size_right)] = 0.0
    return x * mask


def _flip(x: torch.Tensor, a: float, _b: float, _c: float) -> torch.Tensor:
    return x.flip(3) if a < 0.5 else x


def _scale(x: torch.Tensor, a: float, b: float, _: float) -> torch.Tensor:
    down, right = (SCALE ** (2 * v - 1) for v in (a, b))
    return _affine(x, ((down, 0.0), (0.0, right)))


def _rotate(x: torch.Tensor, a: float, _b: float, _c: float) -> torch.Tensor:
    angle = (2 * a - 1) * ROTATE
    return _affine(x, ((math.cos(angle), -math.sin(angle)), (math.sin(angle), math.cos(angle))))


def _affine(x: torch.Tensor, matrix: tuple[tuple[float, float], tuple[float, float]]) -> torch.Tensor:
    theta = torch.tensor([[*matrix[0], 0.0], [*matrix[1], 0.0]], dtype=x.dtype, device=x.device)  # (2, 3)
    grid = F.affine_grid(theta.expand(len(x), 2, 3), list(x.shape), align_corners=False)  # (n, H, W, 2)
    return F.grid_sample(x, grid, align_corners=False)  # zeros outside


_APPLY: dict[str, Callable[[torch.Tensor, float, float, float], torch.Tensor]] = {
    "colour": _colour,
    "shift": _shift,
    "cutout": _cutout,
    "flip": _flip,
    "scale": _scale,
    "rotate": _rotate,
}
