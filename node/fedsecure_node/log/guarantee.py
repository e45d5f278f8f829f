"""The guarantee label of a release: what may truthfully be said of it, and in which words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["NONE", "DifferentialPrivacy", "Guarantee", "Heuristic", "NoGuarantee", "guarantee_words"]


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
    """(epsilon, delta) differential privacy towards one ``unit`` (a record, a patient), as the ledger accounts it."""

    epsilon: float
    delta: float
    unit: str

    def to_json(self) -> dict[str, Any]:
        """For the log."""
        return {"label": "dp", "epsilon": self.epsilon, "delta": self.delta, "unit": self.unit}


Guarantee = NoGuarantee | Heuristic | DifferentialPrivacy
NONE = NoGuarantee()


def guarantee_words(raw: Mapping[str, Any]) -> str:
    """The label of a log record in plain words."""
    label = raw.get("label")
    if label == "dp":
        return (
            f"({raw.get('epsilon'):g}, {raw.get('delta'):g}) differential privacy for each {raw.get('unit')}: whatever "
            "else anybody knows, these bytes change what they can conclude about one by at most this much."
        )
    if label == "heuristic":
        return f"heuristic: {raw.get('which')} ({raw.get('why')}). It makes inference harder; it proves nothing."
    return (
        "none: nothing is proven about what these bytes tell of a single record. The institution's policy, the limits "
        "of the plan and this log are what protects; no mathematics does."
    )
