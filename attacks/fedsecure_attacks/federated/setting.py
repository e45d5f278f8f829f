"""One cell of a sweep over whole runs of FedAF: how it is run. With data, split and seed, its digest is what shadows
are cached by."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["FederatedSetting"]

#: Raised whenever the same setting gives other shadows: a cache of before is then not read.
CODE_VERSION = 1


@dataclass(frozen=True, slots=True)
class FederatedSetting:
    """``ipc`` images per class; ``init`` from noise, averages of ``init_n`` records, or records; ``rounds`` among
    ``nodes``, the audited one among them; in each round ``steps`` of Adam with rate ``lr`` under a new network every
    ``interval`` steps, then about ``server_steps`` of training of the model, a ConvNet of ``width`` (or an MLP, for
    rows). ``lambda_loc``: weight of the SWD term, 0 for none.

    ``sigma``: noise multiplier of ``[privacy] kind = "release"``, one release a round; 0: no differential privacy.
    ``count_sigma``: of the noise on the counts of each class that goes with it. ``residual``: run with twice the steps,
    up to eight times, until the mean squared distance of class means is no more than this; 0: as deployed.
    ``min_count``: a class of fewer records is not held; 1, so that the floor hides nothing from the audit.

    Raises ``ValueError`` for values out of range, and for ``sigma`` with an ``init`` other than noise.
    """

    ipc: int = 10
    init: Literal["noise", "avg", "real"] = "noise"
    init_n: int = 10
    rounds: int = 5
    nodes: int = 3
    steps: int = 100
    interval: int = 20
    lr: float = 0.1
    lambda_loc: float = 0.5
    server_steps: int = 200
    width: int = 32
    sigma: float = 0.0
    residual: float = 0.0
    min_count: int = 1
    count_sigma: float = 10.0

    def __post_init__(self) -> None:
        whole = ("ipc", "init_n", "rounds", "steps", "interval", "server_steps", "width", "min_count")
        for name, low in {**dict.fromkeys(whole, 1), "nodes": 2, "lambda_loc": 0, "sigma": 0, "residual": 0}.items():
            if not getattr(self, name) >= low:
                raise ValueError(f"{name} {getattr(self, name)} (allowed: >= {low})")
        if not self.lr > 0:
            raise ValueError(f"lr {self.lr} (allowed: > 0)")
        if not self.count_sigma >= 1:
            raise ValueError(f"count_sigma {self.count_sigma} (allowed: >= 1)")
        if self.sigma and self.init != "noise":
            raise ValueError(f"init {self.init!r} shows records without noise (allowed with sigma: 'noise')")

    def to_json(self) -> dict[str, Any]:
        """All of it, and the version of the code."""
        return {"kind": "federated", "code_version": CODE_VERSION, **asdict(self)}

    def digest(self) -> str:
        """SHA-256 (hex)."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()
