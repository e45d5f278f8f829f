"""One cell of a sweep: how the shadows condense. Its digest, with data, split and seed, is what they are cached by."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from fedsecure.plan.methods import FedAFSettings

__all__ = ["Setting", "matched"]

#: Raised whenever the same setting gives other shadows: a cache of before is then not read.
CODE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """``ipc`` images per class; ``init`` from noise, averages of ``init_n`` records, or records; ``steps`` of Adam with
    rate ``lr`` under a new network every ``interval`` steps; ``width`` of the network. ``residual``: condense until the
    squared distance of the class means is no more than this, or eight times ``steps`` are done; 0: ``steps`` and no
    more."""

    ipc: int = 10
    init: Literal["noise", "avg", "real"] = "noise"
    init_n: int = 10
    steps: int = 300
    interval: int = 20
    lr: float = 0.1
    width: int = 32
    residual: float = 0.0

    def __post_init__(self) -> None:
        least = {"ipc": 1, "init_n": 1, "steps": 1, "interval": 1, "width": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} {getattr(self, name)} (allowed: >= {low})")
        if self.lr <= 0 or self.residual < 0:
            raise ValueError("lr must be positive, residual not negative")

    def method(self) -> FedAFSettings:
        """The condensation settings that FedAF's own loop takes; without other nodes there is no SWD term."""
        return FedAFSettings(
            name="fedaf", ipc=self.ipc, steps=self.steps, init=self.init, init_n=self.init_n, lr_img=self.lr,
            resample="interval", resample_interval=self.interval, min_count=1, lambda_loc=0.0,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """All of it, and the version of the code."""
        return {"code_version": CODE_VERSION, **asdict(self)}

    def digest(self) -> str:
        """SHA-256 (hex)."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


def matched(setting: Setting, residual: float) -> Setting:
    """The same, condensed until it matches as closely: images per class compared at one ``residual``."""
    return replace(setting, residual=residual)
