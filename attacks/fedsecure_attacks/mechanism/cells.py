"""Results of cells on disk, by all that they were made from. A file whose content is not what was written is not read:
the cell is measured again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsecure.files import make_folder, write_durably
from fedsecure_attacks.mechanism.measures import AttackOnMechanism
from fedsecure_attacks.mechanism.results import CellResult, CellSetting
from fedsecure_attacks.mechanism.sweepfile import SweepSettings
from fedsecure_attacks.verdict import Control

__all__ = ["CellStore", "cell_key"]

#: Raised whenever the same shadows give other results: a store of before is then not read.
SCORES_VERSION = 2
#: The most bytes of a cell's file.
MOST_BYTES = 16 << 20


def cell_key(people: Mapping[str, str], setting: CellSetting, sweep: SweepSettings) -> str:
    """SHA-256 (hex). ``people``: digests of their content."""
    asked = {
        "version": SCORES_VERSION, "people": dict(people), "setting": setting.to_json(), "seed": sweep.seed,
        "shadows": sweep.shadows, "strangers": sweep.strangers, "networks": sweep.networks, "models": sweep.models,
        "model_steps": sweep.model_steps,
        "fpr": sweep.thresholds.fpr,
    }  # fmt: skip
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


class CellStore:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, key: str, setting: CellSetting) -> CellResult | None:
        """The result, or ``None`` where there is none, or none that is whole."""
        path = self._folder / f"{key}.json"
        try:
            if not path.is_file() or path.stat().st_size > MOST_BYTES:
                return None
            held = json.loads(path.read_text(encoding="utf-8"))
            text = _text(held["result"])
            return _unpack(held["result"], setting) if _digest(key, text) == held["sha256"] else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None

    def write(self, key: str, result: CellResult) -> None:
        """Keep it. Raises ``StoreError``."""
        make_folder(self._folder, private=True)
        packed = _pack(result)
        held = {"sha256": _digest(key, _text(packed)), "result": packed}
        write_durably(self._folder / f"{key}.json", json.dumps(held, sort_keys=True, allow_nan=False).encode())


def _text(packed: Any) -> str:
    return json.dumps(packed, sort_keys=True, allow_nan=False)


def _digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key} {text}".encode()).hexdigest()


def _pack(result: CellResult) -> dict[str, Any]:
    return {
        "residual": result.residual,
        "steps": result.steps,
        "accuracy": result.accuracy,
        "copies": result.copies,
        "members": result.members,
        "controls": [[c.name, c.passed, c.said] for c in result.controls],
        "attacks": {name: attack.to_json() for name, attack in result.attacks.items()},
    }


def _unpack(raw: Mapping[str, Any], setting: CellSetting) -> CellResult:
    return CellResult(
        setting,
        float(raw["residual"]),
        float(raw["steps"]),
        {name: AttackOnMechanism.from_json(attack) for name, attack in raw["attacks"].items()},
        None if raw["accuracy"] is None else float(raw["accuracy"]),
        tuple(Control(str(name), bool(passed), str(said)) for name, passed, said in raw["controls"]),
        int(raw["copies"]),
        int(raw["members"]),
    )
