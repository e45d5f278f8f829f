"""The guarantee label of a release: what may truthfully be said of it, and in which words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsecure.plan.privacy import PrivacySettings
from fedsecure.privacy.shares import Trust, trust_words
from fedsecure.text import counted

__all__ = [
    "MECHANISM_WORDS",
    "NONE",
    "SEEDED",
    "DifferentialPrivacy",
    "Guarantee",
    "Heuristic",
    "NoGuarantee",
    "guarantee_words",
    "label_of",
]

#: ``privacy.kind`` of a plan -> what of it is noised.
MECHANISM_WORDS = {
    "dp-sgd": "noisy sums of clipped gradients of Poisson batches",
    "release": "noisy sums of clipped features and logits of each class, with noise drawn once",
    "per-step": "noisy sums of clipped features and logits of Poisson batches of each class, at every step",
}
#: Names the measure where noise can be repeated.
SEEDED = "noise of PyTorch's generator"


@dataclass(frozen=True, slots=True)
class NoGuarantee:
    """Nothing is proven about what these bytes tell of a single record."""

    def to_json(self) -> dict[str, Any]:
        """For the log."""
        return {"label": "none"}


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A measure that makes inference harder in experiments, without a proof. ``which`` names it, ``why`` its
    evidence."""

    which: str
    why: str

    def to_json(self) -> dict[str, Any]:
        """For the log."""
        return {"label": "heuristic", "which": self.which, "why": self.why}


@dataclass(frozen=True, slots=True)
class DifferentialPrivacy:
    """(epsilon, delta) differential privacy towards one ``unit``, as the ledger accounts it: of all that the data set
    ever paid for, this release included. ``adjacency``: what its presence is compared with. ``noise``: where noise
    comes from. ``what``: what of the computation is noised. ``unprotected``: how many releases from the same records
    are known to have no guarantee; of these no epsilon speaks. ``trust``: what epsilon rests on besides this node,
    where a cohort shared noise, and what holds without it."""

    epsilon: float
    delta: float
    unit: str = "record"
    adjacency: str = "zero-out"
    noise: str = "csprng"
    what: str = ""
    unprotected: int = 0
    trust: Trust | None = None

    def to_json(self) -> dict[str, Any]:
        """For the log."""
        return {
            "label": "dp",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "adjacency": self.adjacency,
            "noise": self.noise,
            "what": self.what,
            "unprotected": self.unprotected,
            **({} if self.trust is None else self.trust.to_json()),
        }


Guarantee = NoGuarantee | Heuristic | DifferentialPrivacy
NONE = NoGuarantee()


def label_of(
    privacy: PrivacySettings, epsilon: float, delta: float, unprotected: int = 0, trust: Trust | None = None
) -> Guarantee:
    """What may be said of a release of a plan with ``privacy``, when its data set paid ``epsilon`` at ``delta`` in its
    whole life, and made ``unprotected`` releases besides that prove nothing. Noise that can be repeated proves nothing,
    whatever it costs; nor does an epsilon without bound."""
    what = MECHANISM_WORDS[str(getattr(privacy, "kind", ""))]
    if not (math.isfinite(epsilon) and 0 < delta < 1):
        return NONE
    if privacy.noise == "torch":
        why = f"{what}; whoever knows or guesses its seed takes it off again, and ({epsilon:.4g}, {delta:.3g}) with it"
        return Heuristic(SEEDED, why)
    return DifferentialPrivacy(epsilon, delta, noise=privacy.noise, what=what, unprotected=unprotected, trust=trust)


def _trusted(raw: Mapping[str, Any]) -> str:
    return f" {trust_words(str(raw['trust']), raw.get('epsilon_local'))}" if raw.get("trust") else ""


def guarantee_words(raw: Mapping[str, Any]) -> str:
    """The label of a log record in plain words."""
    label = raw.get("label")
    if label == "dp":
        what = f", by {raw['what']}, {raw.get('noise')} noise" if raw.get("what") else ""
        besides = int(raw.get("unprotected", 0))
        not_covered = f" Not covered: {counted(besides, 'release')} of before without a guarantee." if besides else ""
        return (
            f"({raw.get('epsilon'):.4g}, {raw.get('delta'):.3g}) differential privacy for each {raw.get('unit')}, "
            f"{raw.get('adjacency', 'zero-out')} adjacency{what}; counted over all that these records paid for until "
            "then, this release included. Whatever else anybody knows, these bytes and those before change what they "
            f"can conclude about one by at most this much.{_trusted(raw)}{not_covered}"
        )
    if label == "heuristic":
        return f"heuristic: {raw.get('which')} ({raw.get('why')}). It makes inference harder; it proves nothing."
    return (
        "none: nothing is proven about what these bytes tell of a single record. The institution's policy, the limits "
        "of the plan and this log are what protects; no mathematics does."
    )
