"""What an institution's policy says of differential privacy: the budget of a data set, and what plans may spend it
on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from fedsecure.config import Settings
from fedsecure.plan import Plan
from fedsecure.plan.privacy import AnyPrivacySettings, DPSGDSettings, NoiseKind

__all__ = ["PrivacyRules"]


class PrivacyRules(Settings):
    """Rules for differential privacy. ``epsilon``: all that a data set may spend in its life, over every run and
    method; left out, nothing may be spent, and plans that ask for differential privacy are refused. ``delta``: below
    1 / n for n records; left out, 1 / (10 n). ``required``: no plan without differential privacy. ``mechanisms`` and
    ``noise`` that a plan may use: ``per-step`` is worse at every epsilon, and whoever knows the seed of ``torch`` takes
    its noise off again. ``shares``: whose noise a plan may count on: ``distributed`` is as strong as is charged only if
    few other nodes collude. ``min_sigma``: the least of every noise multiplier of a plan."""

    epsilon: float | None = Field(None, gt=0, le=1e6)
    delta: float | None = Field(None, gt=0, lt=1)
    required: bool = False
    mechanisms: tuple[Literal["dp-sgd", "release", "per-step"], ...] = ("dp-sgd", "release")
    noise: tuple[NoiseKind, ...] = ("csprng", "discrete")
    shares: tuple[Literal["local", "distributed"], ...] = ("local",)
    min_sigma: float = Field(0.5, gt=0, le=1e6)

    def violations(self, plan: Plan) -> Iterator[str]:
        """Each rule that ``plan`` breaks, as ``rule: what the plan asks (allowed: …)``. Whether its whole cost is
        within ``epsilon`` follows from the node's records and its ledger, and is asked there."""
        privacy = plan.privacy
        if privacy is None:
            if self.required:
                yield "privacy.required: no differential privacy (allowed: a plan with [privacy])"
            return
        if self.epsilon is None:
            yield "privacy.epsilon: spends a budget that this policy does not set (allowed: nothing is spent)"
        if privacy.kind not in self.mechanisms:
            yield f"privacy.mechanisms: {privacy.kind} (allowed: {', '.join(self.mechanisms) or 'none'})"
        if privacy.noise not in self.noise:
            yield f"privacy.noise: {privacy.noise} (allowed: {', '.join(self.noise) or 'none'})"
        if isinstance(privacy, DPSGDSettings) and privacy.shares not in self.shares:
            yield f"privacy.shares: {privacy.shares} (allowed: {', '.join(self.shares) or 'none'})"
        for name, sigma in _multipliers(privacy):
            if sigma < self.min_sigma:
                yield f"privacy.min_sigma: {name} {sigma:g} (allowed: >= {self.min_sigma:g})"


def _multipliers(privacy: AnyPrivacySettings) -> Iterator[tuple[str, float]]:
    """Every noise multiplier of a plan, by its name there."""
    yield "sigma", privacy.sigma
    yield "count_sigma", privacy.count_sigma
    if isinstance(privacy, DPSGDSettings):
        yield "mixing_sigma", privacy.mixing_sigma
