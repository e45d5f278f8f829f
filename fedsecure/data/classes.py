"""Class names: a source's own names become the plan's classes by name, never by position.

Two institutions that hold different subsets of the classes would otherwise train on shifted labels.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from fedsecure.data.files import listed
from fedsecure.errors import DataError

__all__ = ["IGNORED", "UNKNOWN", "ClassNames", "canonical"]

#: What ``ClassNames.index`` says of a name that is left out on purpose.
IGNORED = -1
#: What ``ClassNames.index`` says of a name that stands for no class of the plan.
UNKNOWN = -2
#: With more unknown names than this they are counted, not listed: then they are hardly class names, but some other
#: column of the records, which a message must not print.
MAX_LISTED = 20

_WHOLE = re.compile(r"(0|-?[1-9][0-9]*)\.0+")


def canonical(name: str) -> str:
    """The form in which names are compared: composed (NFC), without spaces around, ``3.0`` as ``3``."""
    text = unicodedata.normalize("NFC", name).strip()
    whole = _WHOLE.fullmatch(text)
    return whole.group(1) if whole else text


class ClassNames:
    """The mapping of one source. ``where`` begins every message (the file, or the source in words).

    Raises ``DataError`` when ``mapping`` leads to a class that the plan does not have, when a name is both mapped and
    ignored, or when two names cannot be told apart.
    """

    def __init__(self, mapping: Mapping[str, str], ignore: Iterable[str], classes: Sequence[str], where: str) -> None:
        self.where = where
        self.classes = tuple(classes)
        indices = _by_canonical([(name, i) for i, name in enumerate(classes)], "the plan's classes", where)
        if wrong := sorted({plan for plan in mapping.values() if canonical(plan) not in indices}):
            raise DataError(
                f"{where}: classes maps to {listed(wrong)}, not among the plan's classes {listed(self.classes, 20)}",
                hint="the right-hand side of classes is the plan's name",
            )
        targets = _by_canonical([(own, indices[canonical(p)]) for own, p in mapping.items()], "classes", where)
        self._ignored = {canonical(name) for name in ignore}
        if both := sorted(self._ignored & set(targets)):
            raise DataError(f"{where}: {listed(both)} in classes and in ignore", hint="keep it in one of the two")
        self._indices = {**indices, **targets}

    def index(self, own: str) -> int:
        """The plan's index of the source's ``own`` name, ``IGNORED`` or ``UNKNOWN``."""
        key = canonical(own)
        return IGNORED if key in self._ignored else self._indices.get(key, UNKNOWN)

    def indices(self, own: Sequence[str], what: str) -> list[int]:
        """``index`` of each name. Raises ``DataError`` listing the unknown names and the plan's; ``what`` they are in
        words."""
        found = [self.index(name) for name in own]
        unknown = sorted({name for name, i in zip(own, found, strict=True) if i == UNKNOWN})
        if not unknown:
            return found
        classes = f"the plan's classes {listed(self.classes, 20)}"
        few = len(unknown) <= MAX_LISTED
        raise DataError(
            f"{self.where}: {what} {listed(unknown)} not among {classes}"
            if few
            else f"{self.where}: {what} that are not among {classes}: {len(unknown)} different ones",
            hint="map each to one of the plan's names in classes, or list it in ignore",
        )


def _by_canonical(items: Iterable[tuple[str, int]], what: str, where: str) -> dict[str, int]:
    """Names in canonical form -> index. Raises ``DataError`` when two of them become one with different indices."""
    found: dict[str, int] = {}
    for name, index in items:
        if found.setdefault(canonical(name), index) != index:
            raise DataError(f"{where}: {what}: '{canonical(name)}' stands there in two spellings that compare equal")
    return found
