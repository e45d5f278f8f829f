"""The shadows of a cell, whichever kind its setting is: condensations, or whole federated runs."""

from __future__ import annotations

from dataclasses import dataclass

from fedsecure_attacks.federated.setting import FederatedSetting
from fedsecure_attacks.federated.shadows import FederatedShadow
from fedsecure_attacks.mechanism.cache import ShadowCache
from fedsecure_attacks.mechanism.people import People
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.mechanism.shadows import Shadow
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.splits import coin

__all__ = ["STRANGER", "AnySetting", "Shadows"]

AnySetting = Setting | FederatedSetting
#: Numbers of sets that are made from people who are not in the pool start here.
STRANGER = 1_000_000


@dataclass(frozen=True, eq=False)
class Shadows:
    """Reads or makes shadows of ``people`` in ``setting``."""

    people: People
    setting: AnySetting
    seed: int
    cache: ShadowCache

    @property
    def population(self) -> Labelled:
        """Whom attackers learn people from; in a federated run none of them is with any node."""
        return self.people.population if isinstance(self.setting, Setting) else self.people.strangers

    def shadow(self, number: int) -> Shadow | FederatedShadow:
        """Of a random half of the pool."""
        return self._made(self.people.pool, self.people.digests["pool"], number)

    def stranger(self, number: int) -> Shadow | FederatedShadow:
        """Of a random half of the population."""
        return self._made(self.population, self.population.digest(), STRANGER + number)

    def _made(self, pool: Labelled, digest: str, number: int) -> Shadow | FederatedShadow:
        inside = coin(len(pool), self.seed, number)
        if isinstance(self.setting, Setting):
            return self.cache.get(pool, digest, inside, self.setting, self.seed, number)
        return self.cache.get_federated(
            pool, digest, inside, self.people.others, self.setting, self.seed, number, test=self.people.test
        )
