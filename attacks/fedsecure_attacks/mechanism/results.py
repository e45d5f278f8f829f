"""What was found in one cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fedsecure_attacks.mechanism.measures import AttackOnMechanism
from fedsecure_attacks.verdict import Control

__all__ = ["CellResult", "CellSetting"]


class CellSetting(Protocol):
    """What all settings of cells have."""

    @property
    def ipc(self) -> int:
        """Images per class; 0 where there are none."""
        ...

    @property
    def init(self) -> str:
        """What images start from."""
        ...

    @property
    def sigma(self) -> float:
        """Noise multiplier; 0 for none."""
        ...

    def to_json(self) -> dict[str, Any]:
        """All of it, and the version of the code."""
        ...


@dataclass(frozen=True)
class CellResult:
    """One cell: its setting, mean matching residual, mean steps, mean ``accuracy`` of what is trained on the sets, and
    what each attack found. ``copies``: members released bit for bit, over all shadows; ``members`` of them all."""

    setting: CellSetting
    residual: float
    steps: float
    attacks: Mapping[str, AttackOnMechanism]
    accuracy: float | None = None
    controls: tuple[Control, ...] = ()
    copies: int = 0
    members: int = 0
