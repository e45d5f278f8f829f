"""Condensed images on one sheet: a row for each class with its name, large enough to look at."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from fedsecure.plan.task import ImageTask
from fedsecure_node.text import printable

__all__ = ["Sheet", "contact_sheet", "pixels", "stretched"]

#: An image is drawn at least this wide and high (pixels on the sheet).
MIN_SIDE = 56
#: Images in a line, and lines of a class; what goes beyond is counted, not drawn.
COLUMNS, LINES = 20, 10
GAP, MARGIN, FONT_SIZE = 4, 16, 16
_PAPER, _INK, _FAINT = (245, 245, 245), (25, 25, 25), (110, 110, 110)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A PNG, how many images it shows of how many, and the part of pixel values that had to be clipped to be shown."""

    png: bytes
    shown: int
    total: int
    clipped: float


def pixels(task: ImageTask, images: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], float]:
    """Pixel values in [0, 1] from standardised ``images`` (n, C, H, W), and the part of values that clipping
    changed."""
    column = (-1, 1, 1)
    raw = images * np.array(task.std).reshape(column) + np.array(task.mean).reshape(column)  # (n, C, H, W)
    clipped = float(np.mean((raw < 0) | (raw > 1))) if raw.size else 0.0
    return np.clip(raw, 0.0, 1.0), clipped


def stretched(images: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Each image of (n, C, H, W) from its own least to its own greatest value: nothing hides beyond the edge."""
    wide = images.astype(np.float64)
    if not wide.size:
        return wide
    low = wide.min(axis=(1, 2, 3), keepdims=True)
    high = wide.max(axis=(1, 2, 3), keepdims=True)
    shown: npt.NDArray[np.float64] = (wide - low) / np.where(high > low, high - low, 1.0)
    return shown


def _tile(image: npt.NDArray[np.float64], side: int) -> Image.Image:
    """One image (C, H, W) in [0, 1], enlarged without smoothing. One channel grey, three colour, else the
    channels' mean."""
    array = np.rint(image * 255).astype(np.uint8)
    if array.shape[0] == 3:
        tile = Image.fromarray(np.ascontiguousarray(array.transpose(1, 2, 0)))
    else:
        flat = array[0] if array.shape[0] == 1 else np.rint(image.mean(axis=0) * 255).astype(np.uint8)
        tile = Image.fromarray(flat).convert("RGB")
    scale = max(1, -(-side // max(tile.size)))
    return tile.resize((tile.width * scale, tile.height * scale), Image.Resampling.NEAREST)


def contact_sheet(
    task: ImageTask,
    images: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    title: str,
    *,
    stretch: bool = False,
) -> Sheet:
    """Draw ``images`` (n, C, H, W) with ``labels`` (n,), classes in the plan's order; classes without images are
    left out. ``stretch``: show each image over its own range of values instead of as pixels."""
    shown, clipped = (stretched(images), 0.0) if stretch else pixels(task, images)
    rows = _rows(task.classes, labels)
    font = ImageFont.load_default(FONT_SIZE)
    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    names = [_row_name(name, len(index)) for name, index in rows]
    left = MARGIN + int(max([ruler.textlength(n, font=font) for n in names], default=0)) + MARGIN
    _, height, width = task.shape
    scale = max(1, -(-MIN_SIDE // max(height, width)))
    cell_w, cell_h = width * scale + GAP, height * scale + GAP
    lines = [min(-(-len(index) // COLUMNS), LINES) for _, index in rows]
    columns = min(max([len(index) for _, index in rows], default=1), COLUMNS)
    title_w = int(ruler.textlength(title, font=font)) + 2 * MARGIN
    top = 2 * MARGIN + FONT_SIZE
    size = (max(left + columns * cell_w + MARGIN, title_w), top + sum(lines) * cell_h + len(rows) * GAP + MARGIN)
    sheet = Image.new("RGB", size, _PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((MARGIN, MARGIN), title, fill=_INK, font=font)
    y, drawn = top, 0
    for (_, index), name, count in zip(rows, names, lines, strict=True):
        pen.text((MARGIN, y + (cell_h - GAP - FONT_SIZE) // 2), name, fill=_INK, font=font)
        for place, image in enumerate(index[: count * COLUMNS]):
            tile = _tile(shown[image], max(height, width) * scale)
            sheet.paste(tile, (left + place % COLUMNS * cell_w, y + place // COLUMNS * cell_h))
            drawn += 1
        y += count * cell_h
        pen.line((MARGIN, y, size[0] - MARGIN, y), fill=_FAINT)
        y += GAP
    out = io.BytesIO()
    sheet.save(out, "PNG", optimize=True)
    return Sheet(out.getvalue(), drawn, len(images), clipped)


def _rows(classes: Sequence[str], labels: npt.NDArray[np.int64]) -> list[tuple[str, npt.NDArray[np.intp]]]:
    found = [(name, np.flatnonzero(labels == i)) for i, name in enumerate(classes)]
    return [(name, index) for name, index in found if len(index)]


def _row_name(name: str, count: int) -> str:
    name = printable(name)
    short = name if len(name) <= 28 else name[:27] + "…"
    return f"{short} ({count})"
