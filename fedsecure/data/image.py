"""One picture file -> pixels in [0, 1], or a refusal that says what is wrong with the file.

Lossless steps are taken silently: a palette is looked up, grey is repeated over three channels, three equal channels
become one, an opaque alpha channel is dropped, the orientation tag of a camera is applied. Whatever would change the
data (another size, colour to grey, transparency, one picture out of several) is refused unless the source asks for
it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from fedsecure.data.files import require_file, shown
from fedsecure.errors import DataError
from fedsecure.tensors import Array
from fedsecure.warned import own_filters

__all__ = ["FORMATS", "Wanted", "read_image"]

#: Raster formats whose decoders run no other program and fetch nothing.
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "GIF", "WEBP", "PPM")
#: A picture of more pixels than this is not decoded, whatever its file says (a whole-slide scan, or a decompression
#: bomb).
MAX_PIXELS = 64_000_000
#: A single picture file longer than this is not opened (bytes).
MAX_FILE_BYTES = 2**29
_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)
_FULL_16_BIT = 65_535


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the plan and the source ask of a picture: ``shape`` (channels, height, width), and the two changes
    allowed, which ``place`` is where a person allows."""

    shape: tuple[int, int, int]
    resize: bool
    grey: bool
    place: str = "the source"


def read_image(path: Path, wanted: Wanted) -> Array:
    """float32 (channels, height, width) in [0, 1]. Raises ``DataError`` naming the file."""
    where = shown(path)
    if require_file(path) > MAX_FILE_BYTES:
        raise DataError(f"{where}: larger than {MAX_FILE_BYTES} bytes, so not a picture to learn from or to ask about")
    with own_filters():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with path.open("rb") as stream, Image.open(stream, formats=FORMATS) as picture:
                _check_header(picture, where, wanted)
                pixels = _pixels(ImageOps.exif_transpose(picture), where)  # (h, w) or (h, w, channels)
        except DataError:
            raise
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise _too_large(where) from None
        except UnidentifiedImageError:
            raise DataError(
                f"{where}: not a picture in a known format ({', '.join(FORMATS)})",
                hint="move other files out of the folder; an empty or damaged file is not one either",
            ) from None
        except PermissionError:
            raise DataError(f"{where}: permission denied", hint="let the user that this runs as read it") from None
        except Exception as error:  # a decoder may raise anything on a damaged file, and none of it is ours
            raise DataError(
                f"{where}: damaged or cut short ({type(error).__name__} while decoding)",
                hint="copy the file again, or move it out of the folder",
            ) from None
    return _sized(_channels(pixels, where, wanted), where, wanted)


def _too_large(where: str) -> DataError:
    return DataError(
        f"{where}: more than {MAX_PIXELS} pixels, so it is not decoded", hint="scale the picture down first"
    )


def _check_header(picture: Image.Image, where: str, wanted: Wanted) -> None:
    """What the header says, before a pixel is decoded: number of pictures, size."""
    frames = int(getattr(picture, "n_frames", 1))
    if frames > 1:
        raise DataError(
            f"{where}: holds {frames} pictures (an animation, or pages)", hint="save each record as a file of its own"
        )
    if picture.width * picture.height > MAX_PIXELS:
        raise _too_large(where)
    # Pillow's TIFF reader may have exchanged the sides of a turned picture; the size is checked again once decoded.
    turned = picture.format != "TIFF" and picture.getexif().get(_ORIENTATION) in _TURNED
    size = (picture.width, picture.height) if turned else (picture.height, picture.width)
    if not wanted.resize and wanted.shape[1:] not in (size, size[::-1]):
        raise _wrong_size(where, size, wanted)


def _wrong_size(where: str, size: tuple[int, ...], wanted: Wanted) -> DataError:
    _, height, width = wanted.shape
    return DataError(
        f"{where}: {size[0]} pixels high and {size[1]} wide where the plan asks for {height} and {width}",
        hint=f"scale it yourself, or set resize = true in {wanted.place}",
    )


def _pixels(picture: Image.Image, where: str) -> Array:
    """Grey (h, w), or (h, w, 2 | 3 | 4) with the alpha channel last; float32 in [0, 1]."""
    mode = picture.mode
    if mode in ("P", "PA"):
        picture = picture.convert("RGBA" if mode == "PA" or "transparency" in picture.info else "RGB")
    elif mode == "1":
        picture = picture.convert("L")
    elif mode in ("L", "RGB") and "transparency" in picture.info:
        picture = picture.convert("RGBA")
    if picture.mode in ("L", "LA", "RGB", "RGBA"):
        return np.asarray(picture, dtype=np.uint8).astype(np.float32) / np.float32(255)
    if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format in ("PNG", "PPM")):
        return np.asarray(picture).astype(np.float32) / np.float32(_FULL_16_BIT)
    raise DataError(
        f"{where}: pixels of mode {picture.mode}, whose range or colours are not known",
        hint="save it as 8 or 16-bit grey, or as 8-bit RGB; or store floats in an .npz",
    )


def _channels(pixels: Array, where: str, wanted: Wanted) -> Array:
    """(h, w) or (h, w, k) -> (channels, h, w) as the plan asks."""
    planes = pixels[..., None] if pixels.ndim == 2 else pixels  # (h, w, k)
    colour, alpha = (planes[..., :-1], planes[..., -1:]) if planes.shape[2] in (2, 4) else (planes, None)
    channels = wanted.shape[0]
    if channels < 4 and alpha is not None and (alpha < 1).any():
        raise DataError(
            f"{where}: has transparent pixels where the plan has {channels} channel{'s' * (channels > 1)}",
            hint="save it without transparency",
        )
    if channels == 1 and colour.shape[2] == 3:
        colour = _to_grey(colour, where, wanted)
    elif channels >= 3 and colour.shape[2] == 1:
        colour = np.repeat(colour, 3, axis=2)
    if channels == 4:
        opaque = np.ones_like(colour[..., :1]) if alpha is None else alpha
        colour = np.concatenate([colour, opaque], axis=2)
    return np.ascontiguousarray(colour.transpose(2, 0, 1))


def _to_grey(colour: Array, where: str, wanted: Wanted) -> Array:
    """(h, w, 3) -> (h, w, 1): exact when the three are equal; else the luma of ITU-R BT.601, when allowed."""
    if (colour == colour[..., :1]).all():
        return colour[..., :1]
    if not wanted.grey:
        raise DataError(
            f"{where}: a colour picture where the plan has one channel",
            hint=f"save it as grey, or set grey = true in {wanted.place}",
        )
    luma = colour.astype(np.float64) @ np.array([0.299, 0.587, 0.114])
    grey: Array = np.clip(luma, 0, 1).astype(np.float32)[..., None]
    return grey


def _sized(planes: Array, where: str, wanted: Wanted) -> Array:
    """(channels, h, w) at the plan's size: as it is, or resampled (bilinear with antialiasing) when the source asks
    for it."""
    if planes.shape == wanted.shape:
        return planes
    if not wanted.resize:
        raise _wrong_size(where, planes.shape[1:], wanted)
    _, height, width = wanted.shape
    scaled = [np.asarray(Image.fromarray(plane).resize((width, height), Image.Resampling.BILINEAR)) for plane in planes]
    result: Array = np.clip(np.stack(scaled), 0, 1).astype(np.float32)
    return result
