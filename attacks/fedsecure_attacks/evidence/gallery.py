"""Each released record beside the member and the other person who are nearest to it in the records' own values.

Distances are told to two digits, so that nobody can know a record by them. Pictures of people, and of released records
that may show one, are made on request alone.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedsecure_attacks.evidence.people import Flags, two_digits
from fedsecure_attacks.records import Candidates, Images, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["NEAR", "gallery", "picture"]

#: A member at less than this share of the nearest other's distance: the released record may show them.
NEAR = 0.5
#: Pairs that get pictures, pixels of their longer side, and pairs in all.
MOST_PICTURES, SIDE, MOST_PAIRS = 24, 64, 5000
Name = Callable[[int], str | None]


def gallery(
    released: Labelled, candidates: Candidates, inside: Flags, name: Name, *, pictures: bool, private: bool
) -> list[dict[str, Any]]:
    """Sorted by d_member / d_nonmember, the most telling first. ``name``: the salted id of a candidate. ``pictures``:
    of released records; ``private``: of people, too."""
    rows = candidates.rows.astype(np.float64)
    pairs = [
        _pair(index, s, int(c), rows, candidates.y, inside)
        for index, (s, c) in enumerate(zip(released.rows[:MOST_PAIRS].astype(np.float64), released.y, strict=False))
    ]
    pairs.sort(key=lambda pair: (_ratio(pair), pair["image"]))
    for place, pair in enumerate(pairs):
        at, other = pair.pop("at"), pair.pop("other")
        pair["member_id"], pair["nonmember_id"] = (None if i is None else name(i) for i in (at, other))
        if place < MOST_PICTURES and (pictures or private) and released.x.ndim == 4:
            pair["pictures"] = _pictures(pair, released, candidates, at, other, private)
        for key in ("d_member", "d_nonmember"):
            pair[key] = None if pair[key] is None else two_digits(pair[key])
    return pairs


def _pair(index: int, s: Floats, c: int, rows: Floats, classes: npt.NDArray[np.int64], inside: Flags) -> dict[str, Any]:
    """Nearest of the same class where there is somebody; else of any."""
    found: dict[str, Any] = {"image": index, "class": c}
    for key, place, kind in (("d_member", "at", inside), ("d_nonmember", "other", ~inside)):
        here = np.flatnonzero(kind & (classes == c))
        here = here if len(here) else np.flatnonzero(kind)
        if not len(here):
            found[key], found[place] = None, None
            continue
        apart = np.linalg.norm(rows[here] - s, axis=1)
        nearest = int(apart.argmin())
        found[key], found[place] = float(apart[nearest]), int(here[nearest])
    return found


def _ratio(pair: dict[str, Any]) -> float:
    member, other = pair["d_member"], pair["d_nonmember"]
    if member is None or other is None:
        return float("inf")
    return float(member / other) if other > 0 else 1.0


def _pictures(
    pair: dict[str, Any], released: Labelled, candidates: Candidates, at: int | None, other: int | None, private: bool
) -> dict[str, str]:
    found = {}
    if private or _ratio(pair) >= NEAR:
        found["released"] = picture(released.x[pair["image"]])
    if private:
        found |= {kind: picture(candidates.x[i]) for kind, i in (("member", at), ("nonmember", other)) if i is not None}
    return {kind: data for kind, data in found.items() if data}


def picture(x: Images) -> str:
    """An image (channels, H, W) in [0, 1] as PNG in base64, at most ``SIDE`` pixels a side; "" for one that is neither
    grey nor has three colours."""
    if x.shape[0] not in {1, 3}:
        return ""
    values = np.clip(np.round(np.asarray(x, np.float64) * 255), 0, 255).astype(np.uint8)
    image = Image.fromarray(values[0]) if len(values) == 1 else Image.fromarray(np.moveaxis(values, 0, 2))
    image.thumbnail((SIDE, SIDE))
    stream = io.BytesIO()
    image.save(stream, format="PNG")
    return base64.b64encode(stream.getvalue()).decode()
