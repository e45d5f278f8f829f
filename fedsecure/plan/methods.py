"""Settings of the methods, one class each. The defaults are the protective ones; ``presets.py`` holds the papers'."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from fedsecure.config import Settings
from fedsecure.plan.models import ModelSettings

__all__ = [
    "AnyMethodSettings",
    "CondensationSettings",
    "FedAFSettings",
    "FedAvgSettings",
    "FedDMSettings",
    "FedDRMSettings",
    "FedSPMSettings",
    "LogitClip",
    "MStep",
    "RoutedSettings",
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
    of them, cached for as long as the network stays the same. ``resample``: a fresh network every ``step``, every
    ``resample_interval`` steps, or once a ``round`` (F1). ``init``: ``noise`` (N(0, 1)), ``avg`` (mean of
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
    resample: Literal["step", "interval", "round"] = "interval"
    resample_interval: int = Field(20, ge=1, le=1_000_000)
    server: ServerTraining = ServerTraining()

    @property
    def networks(self) -> int:
        """Networks that the records answer to in a round: each is a question that the coordinator may have made."""
        match self.resample:
            case "step":
                return self.steps
            case "interval":
                return math.ceil(self.steps / self.resample_interval)
            case "round":
                return 1


class FedAFSettings(CondensationSettings):
    """FedAF (FedAF page, sections 2.1 to 2.6)."""

    name: Literal["fedaf"]
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


class MStep(Settings):
    """Local steps of one M-step: SGD whose momentum starts at zero in every round (FedSPM page, P5 and P10)."""

    steps: int = Field(10, ge=1, le=1_000_000)
    batch: int = Field(128, ge=1, le=65_536)
    lr: Rate = 0.01
    schedule: Literal["constant", "cosine"] = "cosine"
    momentum: Momentum = 0.9
    weight_decay: Weight = 5e-4


class PredictStep(MStep):
    """M-step 1: heads and prediction encoder, on f1."""


class RouteStep(MStep):
    """M-step 2: routing encoder and its linear layer, on f2; ``weight_decay`` spares the biases (P6)."""

    steps: int = Field(15, ge=1, le=1_000_000)
    momentum: Momentum = 0.95


class RoutedSettings(Settings):
    """What FedSPM and FedDRM share (FedSPM page, section 2).

    ``router``: the routing encoder; left out, a LeNet for images and a small MLP for tables. ``parametrisation``:
    ``absorbed`` trains b = gamma + log(rho pi), and no mixing weight leaves a node; ``explicit`` trains gamma and needs
    the sums n_i pi_ic of every node. ``route_prior``: ``pooled`` routes by (10); ``density`` leaves rho out of it, as
    FedDRM's code does, and needs every node's number of records. ``share_counts``: nodes send that number, for the
    bias that training starts from (log rho_i / C) and for ``density``. ``diagnostics``: ``summed`` sends the pooled
    softmax and the log-likelihood as sums; ``local`` keeps them in the node.
    """

    router: ModelSettings | None = None
    predict: PredictStep = PredictStep()
    route: RouteStep = RouteStep()
    parametrisation: Literal["absorbed", "explicit"] = "absorbed"
    route_prior: Literal["pooled", "density"] = "pooled"
    share_counts: bool = False
    diagnostics: Literal["local", "summed"] = "local"

    @model_validator(mode="after")
    def _prior_needs_counts(self) -> RoutedSettings:
        if self.route_prior == "density" and not self.share_counts:
            raise ValueError("route_prior 'density' needs share_counts = true, from which rho is known")
        return self


class FedSPMSettings(RoutedSettings):
    """FedSPM (FedSPM page, section 2). ``encoders``: ``shared`` by the components (1x) or ``separate`` (Cx).
    ``e_step``: ``round``, once over all records with the parameters as broadcast, or ``batch``, on each batch with
    those of the moment (P3). ``prediction``: the mixture of the component heads, or the head of the likeliest alone."""

    name: Literal["fedspm"]
    components: int = Field(3, ge=1, le=64)
    encoders: Literal["shared", "separate"] = "shared"
    e_step: Literal["round", "batch"] = "round"
    prediction: Literal["mixture", "likeliest"] = "mixture"


class FedDRMSettings(RoutedSettings):
    """FedDRM (FedSPM page, section 3). ``backbone``: ``separate`` encoders make it FedSPM with one component;
    ``shared`` is the form of its own paper, one backbone with two branches of ``branch`` units and the joint loss
    ``label_weight`` * f1 + (1 - ``label_weight``) * f2, trained by the ``predict`` steps."""

    name: Literal["feddrm"]
    backbone: Literal["separate", "shared"] = "separate"
    branch: int = Field(256, ge=1, le=4096)
    label_weight: float = Field(0.9, gt=0, lt=1)

    @model_validator(mode="after")
    def _shared_has_no_router(self) -> FedDRMSettings:
        if self.backbone == "shared" and self.router is not None:
            raise ValueError("router is set, but with backbone 'shared' the router is a branch of the model")
        return self


AnyMethodSettings = Annotated[
    FedAFSettings | FedDMSettings | FedAvgSettings | FedSPMSettings | FedDRMSettings, Field(discriminator="name")
]
