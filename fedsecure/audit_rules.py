"""The table ``[audit]`` of a policy: what is asked of condensed data before it leaves."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsecure.config import Settings

__all__ = ["AuditRules"]

Inconclusive = Literal["hold", "release"]


class AuditRules(Settings):
    """The membership audit of condensed data before it leaves (attacks/README.md, "The gate"). A leak is never sent; an
    audit that failed is held for a person.

    ``before_release``: ``quick`` audits every release with condensed data, ``off`` none. ``holdout``: the share of
    records of [data] that take part in no run, so that there are people of the same population who are certainly not
    in a release; which ones follows from each record alone. 0: none, and then, unless ``node.toml`` names a
    [holdout], releases are searched for copies of records alone. ``max_tpr`` (at a false-positive rate of 0.01) and
    ``max_auc``: what is accepted of an attack. ``min_power``: the least chance with which an audit has to see a leak
    of twice ``max_tpr``, to say that it found none. ``on_inconclusive``: whether what can neither be called a leak nor
    cleared waits for a person; left out, ``hold`` with held-out records, ``release`` without any.
    """

    before_release: Literal["off", "quick"] = "quick"
    holdout: float = Field(0.0, ge=0, le=0.9)
    max_tpr: float = Field(0.02, gt=0.01, le=1)
    max_auc: float = Field(0.55, ge=0.5, le=1)
    min_power: float = Field(0.8, ge=0, lt=1)
    on_inconclusive: Inconclusive | None = None

    def unsure(self, *, held_out: bool) -> Inconclusive:
        """What becomes of an inconclusive release; ``held_out``: whether it was compared with held-out records."""
        return self.on_inconclusive or ("hold" if held_out else "release")
