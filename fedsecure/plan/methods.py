"""Settings of the methods, one class each. The defaults are the protective ones; ``presets.py`` holds the papers'."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from fedsecure.config import Settings

__all__ = [
    "AnyMethodSettings",
    "CondensationSettings",
    "FedAFSettings",
    "FedAvgSettings",
    "FedDMSettings",
    "LogitClip",
    "ServerTraining",
]

Rate = Annotated[float, Field(gt=0, le=1000)]
Momentum = Annotated[float, Field(ge=0, lt=1)]
Weight = Annotated[float, Field(ge=0, le=1000)]
MAX_CLIP = 1e6


def _clip(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value == "none" or (number and 0 < value <= MAX_CLIP):
        return value
    raise ValueError(f"{value!r:.60} is out of range (allowed: > 0 and <= {MAX_CLIP:g}, or 'none')")


#: A bound on every logit, or "none": TOML has no null.
LogitClip = Annotated[Literal["none"] | Annotated[float, Field(gt=0, le=MAX_CLIP)], BeforeValidator(_clip)]


class ServerTraining(Settings):
    """How the coordinator trains the global model on condensed data (FedAF page, F12 and F13).

    The defaults train a small union to the end in seconds; the papers' 500 epochs of SGD are in the preset ``paper``.
    """

    epochs: int = Field(100, ge=1, le=100_000)
    batch: int = Field(256, ge=1, le=65_536)
    optimizer: Literal["sgd", "adam"] = "adam"
    lr: Rate = 1e-3
    momentum: Momentum = 0.9
    weight_decay: Weight = 5e-4
    sampling: Literal["shuffle", "stratified"] = "shuffle"


class CondensationSettings(Settings):
    """What FedAF and FedDM share: how a node condenses its records into ``ipc`` images for each class it holds.

    ``min_count``: a class with fewer records is not held: nothing of it is condensed or averaged (F7, and a privacy
    floor). ``real_means``: ``batch`` draws ``real_batch`` records a class and step; ``exact`` takes the mean over all
    of them, cached for as long as the network stays the same. ``init``: ``noise`` (N(0, 1)), ``avg`` (mean of
    ``init_n`` real images), or ``real``.
    """

    ipc: int = Field(10, ge=1, le=10_000)
    # With Adam, 100 steps on 5 networks a round reach from noise what 300 steps of SGD on 15 networks do: each network
    # is one query of the records, so fewer of them is less to leak, not only less to compute.
    steps: int = Field(100, ge=1, le=1_000_000)
    real_batch: int = Field(256, ge=1, le=65_536)
    real_means: Literal["batch", "exact"] = "exact"
    min_count: int = Field(10, ge=1, le=1_000_000)
    init: Literal["noise", "avg", "real"] = "noise"
    init_n: int = Field(5, ge=1, le=10_000)
    image_optimizer: Literal["sgd", "adam"] = "adam"
    lr_img: Rate = 0.1
    momentum_img: Momentum = 0.5
    augment: Literal["none", "dsa"] = "none"
    pixel_bound: float = Field(20.0, gt=0, le=1e6)
    server: ServerTraining = ServerTraining()


class FedAFSettings(CondensationSettings):
    """FedAF (FedAF page, sections 2.1 to 2.6)."""

    name: Literal["fedaf"]
    resample: Literal["step", "interval", "round"] = "interval"
    resample_interval: int = Field(20, ge=1, le=1_000_000)
    # The paper's 0.9 goes with a new network every step. Five networks a round must differ more to be as good: 0.5 ends
    # about 3 points higher on the digits, and a model crafted by the coordinator reaches the records only diluted.
    gamma: float = Field(0.5, ge=0, le=1)
    lambda_loc: Weight = 0.5
    lambda_glob: Weight = 0.5
    tau: float = Field(2.0, gt=0, le=1000)
    swd: Literal["p1", "p2sq", "mc"] = "p1"
    num_projections: int = Field(100, ge=1, le=100_000)
    sync: Literal["two_phase", "stale"] = "two_phase"
    averaging: Literal["holders", "holders_weighted", "all"] = "holders"
    lgkm: Literal["batch", "full"] = "batch"
    warm_start: bool = True
    logit_clip: LogitClip = 20.0

    @property
    def max_logit(self) -> float | None:
        """The bound of one record's logits, or ``None`` where the plan sets none."""
        return None if self.logit_clip == "none" else self.logit_clip


class FedDMSettings(CondensationSettings):
    """FedDM (FedAF page, section 2.8): features and logits matched under a fresh perturbation of norm ``rho`` each
    step."""

    name: Literal["feddm"]
    rho: float = Field(5.0, ge=0, le=1e6)
    match_logits: bool = True
    resample: Literal["step", "interval", "round"] = "interval"
    resample_interval: int = Field(20, ge=1, le=1_000_000)
    warm_start: bool = False


class FedAvgSettings(Settings):
    """FedAvg; with ``prox_mu`` > 0, FedProx. Exactly one of ``local_epochs`` and ``local_steps`` is set."""

    name: Literal["fedavg"]
    local_epochs: int | None = Field(None, ge=1, le=100_000)
    local_steps: int | None = Field(None, ge=1, le=1_000_000)
    batch: int = Field(64, ge=1, le=65_536)
    lr: Rate = 0.01
    schedule: Literal["constant", "cosine"] = "constant"
    momentum: Momentum = 0.9
    weight_decay: Weight = 1e-5
    prox_mu: Weight = 0.0

    @model_validator(mode="after")
    def _one_length(self) -> FedAvgSettings:
        if (self.local_epochs is None) == (self.local_steps is None):
            raise ValueError("set exactly one of local_epochs and local_steps")
        return self


AnyMethodSettings = Annotated[FedAFSettings | FedDMSettings | FedAvgSettings, Field(discriminator="name")]
