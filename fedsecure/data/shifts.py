"""The pixels of the dual-heterogeneity benchmark: what makes one node's images look unlike another's, and one latent
component unlike the other (FedSPM page, section 4). All functions are pure and take images (n, 3, H, W), float32 in
[0, 1].
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from fedsecure.tensors import Array

__all__ = ["bits", "component_shift", "cropped", "node_shift", "node_words", "three_channels"]

#: A crop's width / height is drawn between its inverse and this, and drawn anew when it does not fit, so many times
#: at most; as torchvision's RandomResizedCrop has it.
MAX_ASPECT, CROP_TRIES = 4 / 3, 10


def bits(node: int) -> tuple[int, int, int]:
    """Colour, vertical and horizontal bit of node number ``node`` (from 0, below 8), least significant first."""
    return node & 1, node >> 1 & 1, node >> 2 & 1


def node_words(node: int) -> str:
    """The same in words, as in ``red, top, left``: the stronger colour and the brighter sides."""
    colour, vertical, horizontal = bits(node)
    return f"{('red', 'blue')[colour]}, {('top', 'bottom')[vertical]}, {('left', 'right')[horizontal]}"


def three_channels(x: Array, height: int, width: int) -> Array:
    """(n, 1 or 3, h, w) -> (n, 3, height, width): each channel resampled (bilinear, with antialiasing where it
    shrinks), one channel repeated. A new array."""
    if x.shape[2:] == (height, width):
        scaled = x
    else:
        scaled = np.empty((*x.shape[:2], height, width), dtype=np.float32)
        for n, c in np.ndindex(*x.shape[:2]):
            scaled[n, c] = _resampled(x[n, c], (0, 0, x.shape[3], x.shape[2]), height, width)
        np.clip(scaled, 0, 1, out=scaled)
    return np.repeat(scaled, 3, axis=1) if x.shape[1] == 1 else scaled.copy()


def cropped(x: Array, low: float, rng: np.random.Generator) -> Array:
    """Each image cut to a random box of ``low`` to 1 of its area and resampled to its size (RandomResizedCrop), once:
    the records are fixed thereafter. ``low`` = 1 changes nothing and draws nothing."""
    if low >= 1:
        return x
    height, width = x.shape[2:]
    out = np.empty_like(x)
    for n in range(len(x)):
        box = _box(height, width, low, rng)
        for c in range(x.shape[1]):
            out[n, c] = _resampled(x[n, c], box, height, width)
    return np.clip(out, 0, 1, out=out)


def _resampled(plane: Array, box: tuple[int, int, int, int], height: int, width: int) -> Array:
    """The part of ``plane`` (h, w) inside ``box`` (left, top, right, bottom) as (height, width)."""
    picture = Image.fromarray(np.ascontiguousarray(plane))
    return np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR, box=box))


def _box(height: int, width: int, low: float, rng: np.random.Generator) -> tuple[int, int, int, int]:
    for _ in range(CROP_TRIES):
        area = height * width * rng.uniform(low, 1)
        aspect = np.exp(rng.uniform(-np.log(MAX_ASPECT), np.log(MAX_ASPECT)))
        w, h = round(float(np.sqrt(area * aspect))), round(float(np.sqrt(area / aspect)))
        if 0 < w <= width and 0 < h <= height:
            top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
            return left, top, left + w, top + h
    return 0, 0, width, height


def component_shift(x: Array, component: Array, inversion: str) -> Array:
    """Images of component 1 inverted: every channel (``all``), the green one (``green``), or not (``none``).
    ``component``: (n,) of 0 and 1. A new array."""
    out = x.copy()
    inverted = component == 1  # (n,)
    if inversion == "all":
        out[inverted] = 1 - x[inverted]
    elif inversion == "green":
        out[inverted, 1] = 1 - x[inverted, 1]
    return out


def node_shift(x: Array, node: int, gain: float, ramp: float) -> Array:
    """Images as node number ``node`` (from 0, below 8) sees them: one of red and blue times 1 + ``gain``, the other
    times 1 - ``gain``; from one edge to the opposite one ``ramp`` falling to -``ramp`` added, vertically and
    horizontally; clipped to [0, 1]. A new array."""
    colour, vertical, horizontal = bits(node)
    gains = (1 + gain, 1.0, 1 - gain) if colour == 0 else (1 - gain, 1.0, 1 + gain)
    rows, columns = (np.linspace(1, -1, side) for side in x.shape[2:])  # (H,), (W,)
    ramps = ramp * ((1 - 2 * vertical) * rows[:, None] + (1 - 2 * horizontal) * columns)  # (H, W)
    out = x * np.asarray(gains, dtype=np.float32).reshape(3, 1, 1)  # (n, 3, H, W)
    out += ramps.astype(np.float32)
    return np.clip(out, 0, 1, out=out)
