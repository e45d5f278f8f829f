"""Images on one sheet, in rows and columns with names: a PNG to look at."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fedsecure.data.files import shown
from fedsecure.tensors import Array

__all__ = ["Grid", "draw_grid"]

GAP, MARGIN, FONT_SIZE, SMALL = 6, 16, 14, 11
_PAPER, _INK, _FAINT = (245, 245, 245), (25, 25, 25), (110, 110, 110)


@dataclass(frozen=True, eq=False)
class Grid:
    """What to draw. ``images``: (rows, columns, 3, H, W) in [0, 1]; ``captions``: one below each image; ``heads``:
    lines above the columns, each of which is divided evenly among them; ``side``: least width and height of an image
    on the sheet (pixels)."""

    title: str
    images: Array
    captions: Sequence[Sequence[str]]
    rows: Sequence[str]
    heads: Sequence[Sequence[str]]
    side: int


def draw_grid(grid: Grid) -> bytes:
    """The PNG. Images are enlarged by whole numbers, without smoothing; names that do not fit are cut short."""
    count, columns, _, height, width = grid.images.shape
    scale = max(1, -(-grid.side // max(height, width)))
    cell_w, cell_h = width * scale + GAP, height * scale + SMALL + 2 * GAP
    font, small = ImageFont.load_default(FONT_SIZE), ImageFont.load_default(SMALL)
    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    left = 2 * MARGIN + int(max(ruler.textlength(shown(name), font=font) for name in grid.rows))
    top = 2 * MARGIN + FONT_SIZE + len(grid.heads) * (FONT_SIZE + GAP)
    title_w = int(ruler.textlength(grid.title, font=font)) + 2 * MARGIN
    size = (max(left + columns * cell_w + MARGIN, title_w), top + count * cell_h + MARGIN)
    sheet = Image.new("RGB", size, _PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((MARGIN, MARGIN), grid.title, fill=_INK, font=font)
    for line, head in enumerate(grid.heads):
        span = columns * cell_w // len(head)
        y = 2 * MARGIN + FONT_SIZE + line * (FONT_SIZE + GAP)
        for place, text in enumerate(head):
            pen.text((left + place * span, y), _fitted(pen, text, small, span - GAP), fill=_INK, font=small)
    for r, name in enumerate(grid.rows):
        y = top + r * cell_h
        pen.text((MARGIN, y + (height * scale - FONT_SIZE) // 2), shown(name), fill=_INK, font=font)
        for c in range(columns):
            x = left + c * cell_w
            sheet.paste(_tile(grid.images[r, c], scale), (x, y))
            text = _fitted(pen, grid.captions[r][c], small, cell_w - GAP)
            pen.text((x, y + height * scale + 2), text, fill=_FAINT, font=small)
    out = io.BytesIO()
    sheet.save(out, "PNG", optimize=True)
    return out.getvalue()


def _tile(image: Array, scale: int) -> Image.Image:
    """(3, H, W) in [0, 1] -> a picture ``scale`` times as large."""
    pixels = np.rint(image.transpose(1, 2, 0) * 255).astype(np.uint8)  # (H, W, 3)
    tile = Image.fromarray(np.ascontiguousarray(pixels))
    return tile.resize((tile.width * scale, tile.height * scale), Image.Resampling.NEAREST)


def _fitted(pen: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    whole = shown(text)
    cut = whole
    while cut and pen.textlength(cut if cut == whole else f"{cut}…", font=font) > width:
        cut = cut[:-1]
    return cut if cut == whole else f"{cut}…"
