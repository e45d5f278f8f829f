"""What a history costs where some of its noise was shared by a cohort: by the promise, and if the promise is broken.

A spend that rests on other nodes' shares is charged with the noise that remains when at most n_c of them tell theirs.
Beside it stands what one node's own share would have given: nothing that others do takes that away.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fedsecure.plan.privacy import DPSGDSettings, PrivacySettings
from fedsecure.plan.shares import SharedNoise
from fedsecure.privacy.spend import Spend, merged

__all__ = ["SharedHistory", "Trust", "mechanism_of", "shared_noise_of", "trust_words"]


def shared_noise_of(privacy: PrivacySettings, nodes: int) -> SharedNoise | None:
    """How a plan of ``nodes`` nodes shares noise; ``None``: every node adds all of its own."""
    return privacy.shared_noise(nodes) if isinstance(privacy, DPSGDSettings) else None


def mechanism_of(privacy: PrivacySettings, nodes: int, spends: Iterable[Spend]) -> str:
    """What a ledger's entry about ``spends`` calls the mechanism: ``privacy.kind``, and how its noise is shared where
    that of one of them is. ``nodes``: of the plan's cohort."""
    kind, shared = str(getattr(privacy, "kind", "")), shared_noise_of(privacy, nodes)
    if shared is None or not isinstance(privacy, DPSGDSettings):
        return kind
    is_shared = any(spend.q == 1.0 and spend.sigma == privacy.mixing_sigma for spend in spends)
    return f"{kind}, {shared.mark}" if is_shared else kind


@dataclass(frozen=True, slots=True)
class Trust:
    """``promise``: what an epsilon rests on, in words. ``epsilon_local``: what holds without it, at the same delta;
    ``inf`` where that has no bound."""

    promise: str
    epsilon_local: float

    def to_json(self) -> dict[str, Any]:
        """What a label has besides: ``trust``, and ``epsilon_local``, ``null`` where that has no bound."""
        local = self.epsilon_local if math.isfinite(self.epsilon_local) else None
        return {"trust": self.promise, "epsilon_local": local}


class SharedHistory:
    """The spends of one data set's charges, as they were charged, and as they are worth if more nodes collude."""

    def __init__(self) -> None:
        self._local: list[Spend] = []
        self._shared: set[SharedNoise] = set()

    def add(self, spends: Iterable[Spend], mechanism: str) -> None:
        """A charge by ``mechanism`` as ``mechanism_of`` names it. Shares are of releases over all records; any other of
        these in the same charge is taken for one, which costs no less."""
        found = SharedNoise.parse(mechanism)
        for spend in spends:
            if found is not None and spend.q == 1.0:
                self._shared.add(found)
                local = max(found.local_sigma(spend.sigma), sys.float_info.min)  # which has no bound either
                self._local.append(Spend(local, spend.q, spend.steps))
            else:
                self._local.append(spend)

    def trust(self, delta: float, epsilon: Callable[[Sequence[Spend], float], float]) -> Trust | None:
        """What the epsilon of these charges rests on at ``delta``; ``None`` where it rests on nobody else."""
        if not self._shared:
            return None
        promise = " and ".join(shared.words for shared in sorted(self._shared))
        return Trust(promise, epsilon(merged(self._local), delta))


def trust_words(promise: str, epsilon_local: float | None) -> str:
    """One sentence for labels: what holds if, and what holds else."""
    if epsilon_local is None or not math.isfinite(epsilon_local):
        return f"That is so if {promise}; else no epsilon holds."
    return f"That is so if {promise}; else epsilon is {epsilon_local:.4g}, by the noise that this node adds itself."
