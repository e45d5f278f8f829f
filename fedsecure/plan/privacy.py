"""How a plan asks for differential privacy: the mechanism and its strength. What it costs a node follows from the
node's records (``fedsecure.privacy.costs``); what a node may spend says its own policy."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from fedsecure.config import Settings
from fedsecure.plan.methods import AnyMethodSettings, CondensationSettings, FedSPMSettings, RoutedSettings
from fedsecure.plan.shares import SharedNoise

__all__ = [
    "MECHANISMS",
    "AnyPrivacySettings",
    "CondensationPrivacy",
    "DPSGDSettings",
    "NoiseKind",
    "PerStepSettings",
    "PrivacySettings",
    "ReleaseSettings",
    "check_privacy",
    "check_shares",
]

#: Where noise comes from. ``csprng``: Gaussian from AES-256-CTR under keys of the operating system. ``discrete``: the
#: discrete Gaussian on a grid, from the same. ``torch``: PyTorch's generator, which anyone who knows its seed repeats.
NoiseKind = Literal["csprng", "discrete", "torch"]
Sigma = Annotated[float, Field(gt=0, le=1e6, description="noise multiplier: standard deviation over sensitivity")]


class PrivacySettings(Settings):
    """What every mechanism has. ``noise``: its source. ``count_sigma``: standard deviation of the discrete Gaussian
    noise on a node's records per class, which are counted once a run; what takes part is decided by them."""

    sigma: Sigma
    noise: NoiseKind = "csprng"
    count_sigma: float = Field(10.0, ge=1, le=1e6)


class DPSGDSettings(PrivacySettings):
    """FedAvg, FedSPM and FedDRM: DP-SGD over Poisson batches, one joint backward for all that a record touches
    (privacy page, 2.1). ``sigma``: over ``clip``, for each step. ``batch``: expected records of a batch, so that
    q = batch / n. ``physical_batch``: most records whose gradients are held at a time. ``steps`` of a round.
    ``mixing_sigma``, ``mixing_every``: the explicit form's mixing weights are released anew every so many rounds,
    with this noise on the sum of responsibilities.
    ``shares``: whose noise that is. "local": each node's own. "distributed": every node of the cohort adds a share to
    the masked sum, and ``mixing_sigma`` is what remains of them all when ``colluders`` nodes tell theirs to the
    coordinator (left out, as many as the masks withstand); gradients keep local noise, for a sum of trained models is
    not linear in records.

    Learning rates, momenta and weight decay stay where the method has them."""

    kind: Literal["dp-sgd"]
    clip: float = Field(1.0, gt=0, le=1e6)
    batch: int = Field(128, ge=1, le=65_536)
    physical_batch: int = Field(64, ge=1, le=65_536)
    steps: int = Field(15, ge=1, le=1_000_000)
    mixing_sigma: Sigma = 20.0
    mixing_every: int = Field(10, ge=1, le=100_000)
    shares: Literal["local", "distributed"] = "local"
    colluders: int | None = Field(None, ge=0, le=63)

    def shared_noise(self, nodes: int) -> SharedNoise | None:
        """Among how many of a cohort of ``nodes`` the noise of mixing weights is shared; ``None``: it is local."""
        return SharedNoise.of(nodes, self.colluders) if self.shares == "distributed" else None


class CondensationPrivacy(PrivacySettings):
    """FedAF and FedDM (privacy page, 2.2): a record counts as the vector [a h(x) / C_h ; b f(x) / C_f] of features and
    logits, clipped to norm 1; C_h and C_f are median norms of noise images, so no record decides them.
    ``feature_share``: a, with b = sqrt(1 - a^2). ``projection``: dimensions that features are projected to at random
    and publicly; left out, none."""

    feature_share: float = Field(0.9, gt=0, lt=1)
    projection: int | None = Field(None, ge=1, le=65_536)

    @property
    def logit_share(self) -> float:
        """b."""
        return math.sqrt(1.0 - self.feature_share**2)


class ReleaseSettings(CondensationPrivacy):
    """Mechanism A: one Gaussian release of the clipped sums of each held class a round, with noise drawn once;
    condensing against it is free. ``networks``: random networks a round, each of which is a release of its own; it
    stands in for the method's ``resample`` and ``real_means``, and steps take the networks in turn."""

    kind: Literal["release"]
    networks: int = Field(1, ge=1, le=1000)


class PerStepSettings(CondensationPrivacy):
    """Mechanism B, for comparison: noisy sums of a Poisson batch of each class at every step. ``batch``: expected
    records of a class's batch, in place of the method's ``real_batch`` and ``real_means``."""

    kind: Literal["per-step"]
    batch: int = Field(256, ge=1, le=65_536)


AnyPrivacySettings = Annotated[DPSGDSettings | ReleaseSettings | PerStepSettings, Field(discriminator="kind")]

#: mechanism -> the methods that have it.
MECHANISMS: dict[str, tuple[str, ...]] = {
    "dp-sgd": ("fedavg", "fedspm", "feddrm"),
    "release": ("fedaf", "feddm"),
    "per-step": ("fedaf", "feddm"),
}


def check_privacy(privacy: PrivacySettings, method: AnyMethodSettings) -> None:
    """Raise ``ValueError`` unless ``method`` has this mechanism, and nothing in its settings would break the claim."""
    assert isinstance(privacy, DPSGDSettings | ReleaseSettings | PerStepSettings)
    if method.name not in (able := MECHANISMS[privacy.kind]):
        raise ValueError(
            f"privacy.kind {privacy.kind!r} has no place in method {method.name!r} (it is for {', '.join(able)})"
        )
    if isinstance(method, CondensationSettings) and method.init != "noise":
        raise ValueError(f"method.init {method.init!r} shows records without noise (allowed with privacy: 'noise')")
    if isinstance(method, RoutedSettings) and method.diagnostics != "local":
        raise ValueError("method.diagnostics 'summed' sends sums without noise (allowed with privacy: 'local')")


def check_shares(privacy: PrivacySettings, method: AnyMethodSettings, secagg: str, nodes: int) -> None:
    """Raise ``ValueError`` unless noise in shares, where ``privacy`` asks for it, has a sum to go into: one that is
    linear in records, and masked in any case. ``nodes``: how many the plan names."""
    if not isinstance(privacy, DPSGDSettings):
        return
    if privacy.shares == "local":
        if privacy.colluders is not None:
            raise ValueError("privacy.colluders is for noise that is shared (set privacy.shares = 'distributed')")
        return
    asked = "privacy.shares 'distributed'"
    if secagg != "required":
        raise ValueError(f"{asked}: a share is noise for masked sums alone (allowed with secagg: 'required')")
    if not isinstance(method, FedSPMSettings) or method.parametrisation != "explicit" or method.components == 1:
        raise ValueError(
            f"{asked}: method {method.name!r} as it is set sums nothing that is linear in records (it is for 'fedspm' "
            "with parametrisation 'explicit' and two components or more)"
        )
    if privacy.noise == "torch":
        raise ValueError(f"{asked}: shares are drawn from the operating system's keys (allowed: 'csprng', 'discrete')")
    SharedNoise.of(nodes, privacy.colluders)
