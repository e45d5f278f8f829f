"""What a coordinator that cheats could reach: traps with and without each defence, forged averages, differencing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from fedsecure.errors import AuditError, DataError
from fedsecure.models import Network, Parameters, draw_parameters
from fedsecure.models.mlp import MLP
from fedsecure.randomness import torch_generator
from fedsecure_attacks.active.defences import DEFENCES, Defences, release_under
from fedsecure_attacks.active.differencing import difference
from fedsecure_attacks.active.isolation import Isolation, isolation, nothing_released, trials
from fedsecure_attacks.active.trap_model import Trap, forged_unit, trap_model
from fedsecure_attacks.active.trap_statistics import read_out
from fedsecure_attacks.embedding import family
from fedsecure_attacks.records import Images, Labelled
from fedsecure_attacks.statistics.scores import Floats
from fedsecure_attacks.verdict import Thresholds

__all__ = ["audit_active"]

#: Units of the network that a unit is forged in.
HIDDEN = 128
#: Trials without the person by which a false-positive rate of 0.01 is measured.
LEAST_TRIALS = 1000
#: Erased people of the differencing attack, at most.
ERASURES = 20
#: Noise of the release that differencing is tried against, relative to the largest logit.
NOISE = 1.0


def audit_active(
    pool: Labelled,
    population: Labelled,
    *,
    seed: int = 0,
    defences: Mapping[str, Defences] = DEFENCES,
    targets: int = 6,
    count: int = 1000,
    condensings: int = 8,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """The block ``active`` of a report. ``pool``: people who may be at the node; ``population``: others, whom the
    coordinator has. ``targets``: people of the pool, in turn of its classes, who are singled out; ``count`` trials of
    each kind for each; ``condensings`` with forged averages (0: none). The same arguments give the same findings.

    Raises ``AuditError`` when no class has people enough, or trials are too few.
    """
    if count < LEAST_TRIALS:
        raise AuditError(f"{count} trials of each kind (at least {LEAST_TRIALS}: fewer tell no rate at 0.01)")
    thresholds, people = Thresholds(), _targets(pool, population, defences, targets)
    classes = max(2, int(max(pool.y.max(), population.y.max())) + 1)
    network, traps = family(pool.x.shape[1:], classes), {"trained": list[Trap](), "forged unit": list[Trap]()}
    start = draw_parameters(network, torch_generator(seed, "start"))
    rows = _rows_network(pool, classes)
    for number, (c, here) in enumerate(people):
        progress(f"trap {number + 1} of {len(people)}")
        known = population.x[population.y == c]
        traps["trained"].append(trap_model(network, start, here[:1], known, seed=seed))
        traps["forged unit"].append(forged_unit(rows, here[0], population, c))
    groups = [here for _, here in people]
    found: dict[str, dict[str, Any]] = {}
    for name, one in defences.items():
        progress(f"traps against: {name}")
        found[name] = {
            kind: _against(one, made, groups, count, seed).to_json(thresholds) for kind, made in traps.items()
        }
    progress("differencing")
    return {
        "trap_model": {
            **next(iter(found.values())),
            "largest_parameter": {kind: max(t.largest for t in made) for kind, made in traps.items()},
            "many_at_once": _many(network, start, people[0], population, count, seed).to_json(thresholds),
            "another_person": _blind(traps["trained"], groups, count, seed).to_json(thresholds),
        },
        "trap_statistics": _forged(traps["trained"][0], start, people[0], population, condensings, seed),
        "differencing": _differencing(network, start, groups[0], seed),
        "defences": {name: {"setting": asdict(one), **found[name]} for name, one in defences.items()},
        "says": _says(found),
    }


def _targets(
    pool: Labelled, population: Labelled, defences: Mapping[str, Defences], targets: int
) -> list[tuple[int, Images]]:
    """(class, its people in the pool with the target first), classes in turn."""
    least = 1 + max(one.records for one in defences.values())
    able = [c for c in np.unique(pool.y).tolist() if (pool.y == c).sum() >= least and (population.y == c).sum() >= 2]
    if not able:
        raise AuditError(f"no class has {least} people in the pool, and others in the population")
    found = []
    for number in range(targets):
        c = able[number % len(able)]
        here = pool.x[pool.y == c]
        found.append((c, np.roll(here, -(number // len(able)), axis=0)))
    return found


def _rows_network(pool: Labelled, classes: int) -> MLP:
    """One hidden layer, in which a unit can be forged."""
    import torch

    with torch.device("meta"):
        return MLP(int(np.prod(pool.x.shape[1:])), classes, (HIDDEN,), None)


def _against(defences: Defences, traps: list[Trap], groups: list[Images], count: int, seed: int) -> Isolation:
    each, why = [], ""
    for number, (trap, here) in enumerate(zip(traps, groups, strict=True)):
        try:
            released = release_under(defences, trap.network, trap.w, here, seed)
        except DataError:
            released, why = None, "the mechanism refuses the model: noise images give it nothing to scale by"
        if released is not None:
            rng = np.random.default_rng([seed, number])
            each.append(trials(released, 0, trap.coordinates[0], defences.records, count, rng))
    return isolation(each) if each else nothing_released(why or "the node releases nothing", len(traps))


def _blind(traps: list[Trap], groups: list[Images], count: int, seed: int) -> Isolation:
    """Negative control: a trap for one person tells nothing of another's being in."""
    each = []
    for number, (trap, here) in enumerate(zip(traps, groups, strict=True)):
        without = here[1:]
        released = release_under(Defences(), trap.network, trap.w, without, seed)
        assert released is not None
        records = min(Defences().records, len(without) - 1)
        each.append(trials(released, 0, trap.coordinates[0], records, count, np.random.default_rng([seed, number])))
    return isolation(each)


def _many(
    network: Network, start: Parameters, person: tuple[int, Images], population: Labelled, count: int, seed: int
) -> Isolation:
    """One model that singles out as many of a class as there are logits."""
    c, here = person
    trap = trap_model(network, start, here[: network.head.out_features], population.x[population.y == c], seed=seed)
    each = []
    others = here[len(trap.coordinates) :]
    for j in trap.coordinates:
        group = np.concatenate([here[j : j + 1], others])
        released = release_under(Defences(), network, trap.w, group, seed)
        assert released is not None
        records = min(Defences().records, len(group) - 1)
        each.append(trials(released, 0, j, records, count, np.random.default_rng([seed, j])))
    return isolation(each)


def _forged(
    trap: Trap, start: Parameters, person: tuple[int, Images], population: Labelled, condensings: int, seed: int
) -> dict[str, Any]:
    if condensings < 2:
        return {"asked": False}
    c, here = person
    records = min(Defences().records, len(here) - 1)
    found = read_out(trap, start, here, population.x[population.y == c], records=records, count=condensings, seed=seed)
    return {"asked": True, **{name: one.to_json() for name, one in found.items()}}


def _differencing(network: Network, w: Parameters, here: Images, seed: int) -> dict[str, Any]:
    erasures = min(ERASURES, len(here))
    other = draw_parameters(network, torch_generator(seed, "another model"))
    rng = np.random.default_rng([seed, 1])

    def noisy(mean: Floats, records: int) -> Floats:
        return mean + rng.normal(scale=NOISE * float(np.abs(mean).max()) / records, size=mean.shape)

    return {
        "the same model": difference(network, w, here, erasures=erasures).to_json(),
        "another model": difference(network, w, here, erasures=erasures, w_after=other).to_json(),
        "the same model, noise": difference(network, w, here, erasures=erasures, release=noisy).to_json(),
        "the node's rule": "release.min_changed_records: no second answer under one model while few records changed",
    }


def _says(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One sentence for each defence, in plain words."""
    said = []
    for name, kinds in found.items():
        told = [kind for kind, one in kinds.items() if one["one_round_isolates_one_person"]]
        answer = f"yes ({', '.join(told)})" if told else "no"
        leaks = [kind for kind, one in kinds.items() if one["verdict"] == "LEAK" and kind not in told]
        more = f"; more than is accepted is told all the same ({', '.join(leaks)})" if leaks else ""
        said.append(f"defence {name}: does one round isolate one person? {answer}{more}")
    return said
