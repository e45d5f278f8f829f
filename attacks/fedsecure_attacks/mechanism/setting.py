"""One cell of a sweep: how the shadows condense. Its digest, with data, split and seed, is what they are cached by."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from fedsecure.plan.methods import FedAFSettings
from fedsecure.plan.privacy import ReleaseSettings

__all__ = ["Setting", "matched"]

#: Raised whenever the same setting gives other shadows: a cache of before is then not read.
CODE_VERSION = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """``ipc`` images per class; ``init`` from noise, averages of ``init_n`` records, or records; ``steps`` of Adam with
    rate ``lr`` under a new network every ``interval`` steps; ``width`` of the network. ``residual``: condense until the
    squared distance of the class means is no more than this, looked at five times in ``steps``, or eight times
    ``steps`` are done; 0: ``steps`` and no more.

    ``sigma``: noise multiplier of Mechanism A: the class sums of ``releases`` networks are released with noise, once
    each, and all steps match these; 0: no noise, and a new network every ``interval``. A plan takes noise with ``init =
    "noise"`` alone, since other images start from records without any; to measure that, all are allowed here.
    ``count_sigma``: of the noise on the counts of each class, which goes with it.

    Raises ``ValueError`` for values out of range."""

    ipc: int = 10
    init: Literal["noise", "avg", "real"] = "noise"
    init_n: int = 10
    steps: int = 300
    interval: int = 20
    lr: float = 0.1
    width: int = 32
    residual: float = 0.0
    sigma: float = 0.0
    releases: int = 1
    count_sigma: float = 10.0

    def __post_init__(self) -> None:
        least = {"ipc": 1, "init_n": 1, "steps": 1, "interval": 1, "width": 1, "releases": 1, "count_sigma": 1}
        for name, low in least.items():
            if not getattr(self, name) >= low:
                raise ValueError(f"{name} {getattr(self, name)} (allowed: >= {low})")
        if not self.lr > 0 or not self.residual >= 0 or not self.sigma >= 0:
            raise ValueError("lr must be positive, residual and sigma not negative")
        if self.sigma and self.residual:
            raise ValueError("a residual goes without sigma: noise is a floor below which no steps get")

    def method(self) -> FedAFSettings:
        """The condensation settings that FedAF's own loop takes; without other nodes there is no SWD term."""
        return FedAFSettings(
            name="fedaf", ipc=self.ipc, steps=self.steps, init=self.init, init_n=self.init_n, lr_img=self.lr,
            resample="interval", resample_interval=self.interval, min_count=1, lambda_loc=0.0,
        )  # fmt: skip

    def privacy(self) -> ReleaseSettings:
        """Mechanism A as a plan would have it, with noise that a seed repeats: the same distribution, for measuring
        alone. ``sigma`` must not be 0."""
        return ReleaseSettings(
            kind="release", sigma=self.sigma, networks=self.releases, noise="torch", count_sigma=self.count_sigma
        )

    def to_json(self) -> dict[str, Any]:
        """All of it, and the version of the code."""
        return {"code_version": CODE_VERSION, **asdict(self)}

    def digest(self) -> str:
        """SHA-256 (hex)."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()


def matched(setting: Setting, residual: float) -> Setting:
    """The same, condensed until it matches as closely: images per class compared at one ``residual``."""
    return replace(setting, residual=residual)
