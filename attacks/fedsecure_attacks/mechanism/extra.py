"""What a coordinator sees besides the last set, for shadows that are whole federated runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from fedsecure_attacks.federated.attacks import coordinator_attacks
from fedsecure_attacks.federated.shadows import FederatedShadow
from fedsecure_attacks.mechanism.makers import AnySetting
from fedsecure_attacks.mechanism.scoring import AnyShadow, Besides
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["coordinators"]


def coordinators(setting: AnySetting, pool: Labelled, population: Labelled) -> Besides | None:
    """The attacks of a coordinator (T3) on a target, with the other shadows as references; ``None`` for single
    condensations, of which there is nothing else to see."""
    if isinstance(setting, Setting):
        return None
    candidates = Candidates(pool.x, pool.y)

    def attacks(one: AnyShadow, others: Sequence[AnyShadow]) -> Mapping[str, Floats]:
        return coordinator_attacks(0, cast("list[FederatedShadow]", [one, *others]), population, candidates)

    return attacks
