"""The audit of one cell: shadows, scores, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedsecure_attacks.embedding import pixels, random_networks
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.trained import STEPS
from fedsecure_attacks.mechanism import cellcontrols
from fedsecure_attacks.mechanism.cache import ShadowCache
from fedsecure_attacks.mechanism.extra import coordinators
from fedsecure_attacks.mechanism.makers import AnySetting, Shadows
from fedsecure_attacks.mechanism.measures import AttackOnMechanism, measure_attack
from fedsecure_attacks.mechanism.people import People
from fedsecure_attacks.mechanism.remembered import Remembered
from fedsecure_attacks.mechanism.results import CellResult
from fedsecure_attacks.mechanism.scoring import attack_shadows
from fedsecure_attacks.records import Labelled

__all__ = ["AttackOnMechanism", "CellResult", "audit_cell", "audit_people", "frames_of"]


def audit_cell(
    pool: Labelled,
    population: Labelled,
    setting: AnySetting,
    *,
    shadows: int = 8,
    seed: int = 0,
    networks: int = 8,
    with_models: bool = True,
    cache: ShadowCache | None = None,
    fpr: float = 0.01,
    strangers: int = 0,
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> CellResult:
    """Condense ``shadows`` random halves of ``pool`` and attack each with the others as references. ``population``: who
    the attacker learns people from; none of them is in the pool."""
    return audit_people(
        People(pool, population), setting, shadows=shadows, seed=seed, networks=networks, with_models=with_models,
        cache=cache, fpr=fpr, strangers=strangers, progress=progress,
    )  # fmt: skip


def audit_people(
    people: People,
    setting: AnySetting,
    *,
    shadows: int,
    seed: int,
    networks: int,
    with_models: bool,
    cache: ShadowCache | None,
    fpr: float,
    strangers: int,
    frames: Mapping[str, Frame] | None = None,
    model_steps: int = STEPS,
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> CellResult:
    """As ``audit_cell``, with all that ``people`` have. ``strangers``: sets made from the population, of which nothing
    may be told. ``frames``: as ``frames_of`` makes them. Raises ``ValueError`` for too few shadows, ``AuditError`` for
    what cannot be audited."""
    source, pool = Shadows(people, setting, seed, cache or ShadowCache(None)), people.pool
    made, unknown = [], []
    for number in range(shadows + strangers):
        if number < shadows:
            made.append(source.shadow(number))
        else:
            unknown.append(source.stranger(number - shadows))
        progress("condensing", number + 1, shadows + strangers)
    population = source.population
    frames = frames or frames_of(pool, population, seed, networks)
    attacked = attack_shadows(
        pool, made, population, frames, seed, with_models=with_models, strangers=unknown, test=people.test,
        model_steps=model_steps,
        besides=coordinators(setting, pool, population),
        progress=lambda done, of: progress("attacking", done, of),
    )  # fmt: skip
    attacks = {name: measure_attack(name, attacked.targets, pool.y, fpr) for name in attacked.targets[0].scores}
    return CellResult(
        setting,
        _mean([s.residual for s in made]),
        _mean([s.steps for s in made]),
        attacks,
        _accuracy([getattr(s, "accuracy", None) for s in made], attacked.accuracy),
        (
            cellcontrols.planted(made[0], pool, population, seed),
            cellcontrols.null(attacked.unseen, pool, seed),
        ),
        cellcontrols.copies(made, pool, population),
        int(sum(s.inside.sum() for s in made)),
    )


def frames_of(pool: Labelled, population: Labelled, seed: int, networks: int) -> dict[str, Frame]:
    """The population in random networks and in pixels."""
    classes = max(2, int(max(pool.y.max(), population.y.max())) + 1)
    embed = Remembered(random_networks(pool.x.shape[1:], classes, seed, networks))
    return {"networks": Frame.of(population, embed), "pixels": Frame.of(population, pixels)}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _accuracy(own: Sequence[float | None], trained: Sequence[float]) -> float | None:
    """The federation's own models', where there are such; else that of models trained on the sets."""
    known = [value for value in own if value is not None]
    if known:
        return _mean(known)
    return _mean(trained) if trained else None
