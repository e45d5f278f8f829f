"""Shadows of whole runs of FedAF: the run itself, what each attacker sees of it, and what more rounds tell."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, replace
from types import ModuleType
from typing import get_type_hints

import numpy as np
import pytest
import torch

from fedsecure.errors import AuditError
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.simulation import simulate
from fedsecure_attacks.embedding import pixels
from fedsecure_attacks.federated.attacks import coordinator_attacks, other_node_attacks
from fedsecure_attacks.federated.run import TARGET, deal, plan_of
from fedsecure_attacks.federated.setting import FederatedSetting
from fedsecure_attacks.federated.shadows import FederatedShadow, make_federated
from fedsecure_attacks.images.copies import average_scan, copy_scan, exact_copies
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.likelihood import image_likelihood
from fedsecure_attacks.images.logits import difference_tracing, mean_logit_tracing, soft_label_tracing
from fedsecure_attacks.images.neighbour import raw_neighbour
from fedsecure_attacks.images.tracing import RoundsFrame, mean_tracing, multi_round
from fedsecure_attacks.images.trained import loss_attack
from fedsecure_attacks.mechanism.cache import ShadowCache, shadow_key
from fedsecure_attacks.observation import Coordinator, OtherNode, Outsider
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.splits import coin
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Floats, Scores

QUICK = FederatedSetting(ipc=2, rounds=2, nodes=2, steps=8, interval=4, width=8, server_steps=6)
#: Enough of both to match; what the attacks are measured on.
LONGER = replace(QUICK, ipc=3, rounds=4, steps=30, interval=10, width=16, server_steps=30)
CLASSES = 3


@pytest.fixture(scope="module")
def people() -> dict[str, Labelled]:
    """Digits of three classes: 160 candidates, 100 people of other nodes, 180 who teach the population, 80 to test."""
    from sklearn.datasets import load_digits

    held = load_digits()
    keep = np.flatnonzero(held.target < CLASSES)
    order = keep[np.random.default_rng(0).permutation(len(keep))]
    x, y = (held.images[order] / 16).astype(np.float32)[:, None], held.target[order].astype(np.int64)
    parts = {"pool": slice(0, 160), "others": slice(160, 260), "population": slice(260, 440), "test": slice(440, None)}
    return {name: Labelled(name, x[part], y[part]) for name, part in parts.items()}


def made(people: dict[str, Labelled], setting: FederatedSetting = QUICK, number: int = 0) -> FederatedShadow:
    pool = people["pool"]
    return make_federated(pool, coin(len(pool), 0, number), people["others"], setting, 0, number, test=people["test"])


@pytest.fixture(scope="module")
def shadow(people: dict[str, Labelled]) -> FederatedShadow:
    return made(people)


@pytest.fixture(scope="module")
def shadows(people: dict[str, Labelled]) -> list[FederatedShadow]:
    return [made(people, LONGER, number) for number in range(4)]


def same(first: FederatedShadow, second: FederatedShadow) -> bool:
    """Whether both are one, bit for bit."""
    models = [(*(r.w for r in s.rounds), s.final) for s in (first, second)]
    return (
        first.plan == second.plan
        and [r.released.digest() for r in first.rounds] == [r.released.digest() for r in second.rounds]
        and all(torch.equal(a[name], b[name]) for a, b in zip(*models, strict=True) for name in a)
        and all(np.array_equal(a.mean_logits, b.mean_logits) for a, b in zip(first.rounds, second.rounds, strict=True))
        and np.array_equal(first.global_logits, second.global_logits)
        and (first.residual, first.steps, first.accuracy) == (second.residual, second.steps, second.accuracy)
    )


def area(scores: Floats, pool: Labelled, inside: np.ndarray) -> float:
    """Mean area over classes."""
    by_class = [Scores.of(scores[pool.y == c], inside[pool.y == c]) for c in range(CLASSES)]
    return float(np.mean([auc(each) for each in by_class]))


def test_a_shadow_is_what_simulate_makes_of_the_same_data_and_seed(people, shadow):
    inside = coin(len(people["pool"]), 0, 0)
    plan = plan_of(QUICK, people["pool"], people["others"], 0, 0)
    data = deal(QUICK, people["pool"], inside, people["others"])
    method = build_method(plan)
    result = simulate(plan, method, data)
    model = method.model(result.server)
    assert set(model) == set(shadow.final)
    assert all(np.array_equal(model[name], shadow.final[name].numpy()) for name in model)
    kept = result.local[TARGET].under("condensed")  # what the audited node released last, standardised
    mean, std = np.float32(plan.task.mean[0]), np.float32(plan.task.std[0])
    assert np.array_equal(shadow.released.x, kept["images"] * std + mean)
    assert np.array_equal(shadow.released.y, kept["labels"])


@pytest.mark.parametrize("sigma", [0.0, 2.0])
def test_the_same_arguments_give_the_same_bytes(people, sigma):
    setting = replace(QUICK, sigma=sigma, rounds=1)
    state = torch.random.get_rng_state()
    first = made(people, setting)
    torch.rand(3)
    assert same(first, made(people, setting))
    assert not same(first, made(people, setting, 1))
    torch.random.set_rng_state(state)
    made(people, setting)
    assert torch.equal(torch.random.get_rng_state(), state)  # nobody else's draws are moved


def test_a_shadow_is_read_again_and_never_a_stale_or_tampered_one(people, tmp_path):
    pool, others, cache = people["pool"], people["others"], ShadowCache(tmp_path)
    inside, setting = coin(len(pool), 0, 0), replace(QUICK, rounds=1, steps=2)

    def get() -> FederatedShadow:
        return cache.get_federated(pool, pool.digest(), inside, others, setting, 0, 0, test=people["test"])

    first = get()
    assert same(first, get())
    assert (cache.made, cache.hits) == (1, 1)
    (path,) = tmp_path.glob("*.npz")
    assert path.stat().st_mode & 0o777 == 0o600
    with np.load(path) as held:
        arrays = dict(held)
    arrays["mean_logits"] = arrays["mean_logits"] + 0.01
    np.savez(path, **arrays)
    assert same(first, get())
    assert (cache.made, cache.hits) == (2, 1)
    x = others.x.copy()
    x[0, 0, 0, 0] += 1 / 255
    changed = Labelled("others", x, others.y)
    digests = [(o.digest(), t) for o, t in ((others, ""), (changed, ""), (others, people["test"].digest()))]
    assert len({shadow_key(pool.digest(), inside, setting, 0, 0, more) for more in digests}) == 3
    assert shadow_key(pool.digest(), inside, setting, 0, 0) != shadow_key(
        pool.digest(), inside, replace(setting, lambda_loc=0.0), 0, 0
    )


def test_steps_are_doubled_until_the_means_match(people, shadow):
    longer = made(people, replace(QUICK, residual=shadow.residual * 0.9))
    assert longer.steps > shadow.steps == 16
    assert longer.residual < shadow.residual


def test_candidates_cannot_be_with_other_nodes(people):
    pool, others = people["pool"], people["others"]
    mixed = Labelled("others", np.concatenate([others.x, pool.x[:2]]), np.concatenate([others.y, pool.y[:2]]))
    with pytest.raises(AuditError, match=r"^others: 2 of its records are candidates of pool, too$"):
        deal(QUICK, pool, coin(len(pool), 0, 0), mixed)
    with pytest.raises(AuditError, match=r"^pool: a split has no record in any class$"):
        deal(QUICK, pool, np.zeros(len(pool), np.bool_), others)
    with pytest.raises(AuditError, match=r"^others: too few records for 2 other nodes$"):
        deal(replace(QUICK, nodes=3), pool, coin(len(pool), 0, 0), others.take(np.array([0])))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ipc": 0}, r"^ipc 0 \(allowed: >= 1\)$"),
        ({"nodes": 1}, r"^nodes 1 \(allowed: >= 2\)$"),
        ({"sigma": float("nan")}, r"^sigma nan \(allowed: >= 0\)$"),
        ({"sigma": 1.0, "init": "real"}, r"^init 'real' shows records without noise"),
    ],
)
def test_settings_out_of_range(change, said):
    with pytest.raises(ValueError, match=said):
        FederatedSetting(**change)


#: Every attack, and the least observation that it is made for.
ATTACKS: dict[type, list[Callable]] = {
    Outsider: [
        average_scan, copy_scan, exact_copies, image_likelihood, loss_attack, mean_tracing, raw_neighbour,
    ],
    Coordinator: [mean_logit_tracing, multi_round, soft_label_tracing],
    OtherNode: [difference_tracing],
}  # fmt: skip


def reached(start: object) -> Iterator[object]:
    """Every object that can be got at from ``start``, code aside."""
    todo, known = [start], set()
    while todo:
        one = todo.pop()
        if id(one) in known or isinstance(one, type | ModuleType) or callable(one):
            continue
        known.add(id(one))
        yield one
        todo += gc.get_referents(one)
        if isinstance(one, np.ndarray) and one.base is not None:
            todo.append(one.base)


def test_an_attack_is_shown_what_its_attacker_sees_and_says_so_in_its_type():
    for kind, attacks in ATTACKS.items():
        for attack in attacks:
            hints = get_type_hints(attack)
            assert hints["seen"] is kind, attack.__name__
            assert not {FederatedShadow, np.ndarray} & set(hints.values()), attack.__name__
    named = {field.name for field in fields(Outsider)}
    assert named == {"released", "population", "counts"}
    for stronger in (Coordinator, OtherNode):
        assert not issubclass(stronger, Outsider)  # an outsider's attack cannot be handed more by accident either


def test_an_outsider_reaches_no_model_and_nobody_who_is_in(people, shadow):
    seen = shadow.observation(people["population"])
    outsider = seen.as_outsider()
    everything = list(reached(outsider))
    assert any(one is outsider.released.x for one in everything)  # the walk sees what there is
    assert not [one for one in everything if isinstance(one, torch.Tensor | Plan | Coordinator | FederatedShadow)]
    assert not [one for one in everything if isinstance(one, np.ndarray) and one.dtype == np.bool_]
    with pytest.raises(AttributeError):
        _ = outsider.rounds
    with pytest.raises(FrozenInstanceError):
        outsider.released = people["pool"]


def test_nobody_reaches_who_is_in_or_a_nodes_seed(people, shadow):
    views = (shadow.observation(people["population"]), shadow.other_node(people["others"]))
    assert shadow.plan.seed != 0
    for seen in views:
        everything = list(reached(seen))
        assert any(isinstance(one, torch.Tensor) for one in everything)
        assert not [one for one in everything if isinstance(one, np.ndarray) and one.dtype == np.bool_]
        assert not [one for one in everything if isinstance(one, FederatedShadow)]
        assert shadow.plan.seed not in [one for one in everything if isinstance(one, int)]
    other = views[1]
    assert not hasattr(other, "rounds")
    known = set(people["pool"].fingerprints())
    assert not known & set(other.own.fingerprints())


def test_an_attack_that_is_shown_too_little_or_another_view_stops(people, shadow):
    pool, population = people["pool"], people["population"]
    candidates, seen = Candidates(pool.x, pool.y), shadow.observation(population)
    outsider, rounds = seen.as_outsider(), RoundsFrame.of(seen)
    said = "this attack sees what a Coordinator sees, and was shown a Outsider"
    for attack in (
        lambda: multi_round(outsider, candidates, rounds),
        lambda: mean_logit_tracing(outsider, candidates),
        lambda: soft_label_tracing(outsider, candidates),
        lambda: RoundsFrame.of(outsider),
    ):
        with pytest.raises(TypeError, match=said):
            attack()
    with pytest.raises(TypeError, match="what a Outsider sees"):
        mean_tracing(seen, candidates, Frame.of(population, pixels))
    with pytest.raises(TypeError, match="what a OtherNode sees"):
        difference_tracing(seen, candidates)


def test_more_rounds_tell_more_than_one(people, shadows):
    """A1 with the other halves as references: four rounds against the last alone, over four targets."""
    pool, candidates = people["pool"], Candidates(people["pool"].x, people["pool"].y)
    one, all_of_them = [], []
    for target, each in enumerate(shadows):
        others = [s for i, s in enumerate(shadows) if i != target]
        seen = each.observation(people["population"])
        last = replace(seen, rounds=seen.rounds[-1:])
        for found, view in ((one, last), (all_of_them, seen)):
            sets = [[r.released for r in s.rounds[-len(view.rounds) :]] for s in others]
            found.append(area(multi_round(view, candidates, RoundsFrame.of(view), sets), pool, each.inside))
    assert np.mean(all_of_them) > np.mean(one)
    assert np.mean(all_of_them) > 0.55


def test_what_the_coordinator_and_another_node_find_and_what_noise_takes_away(people, shadows):
    pool = people["pool"]
    candidates = Candidates(pool.x, pool.y)
    found = coordinator_attacks(0, shadows, people["population"], candidates, disjoint=shadows[1:2])
    assert set(found) == {
        "mean-tracing-rounds", "mean-tracing-rounds-references", "mean-tracing-rounds-disjoint", "mean-logits",
        "mean-logits-pool", "soft-labels",
    }  # fmt: skip
    inside = shadows[0].inside
    assert all(np.isfinite(scores).all() for scores in found.values())
    clear = area(found["mean-logits-pool"], pool, inside)
    assert clear > 0.6
    theirs = other_node_attacks(shadows[0], people["others"], candidates)["mean-logits-other-node"]
    assert area(theirs, pool, inside) > 0.53
    noisy = made(people, replace(LONGER, sigma=20.0, steps=2, server_steps=1), 0)
    hidden = coordinator_attacks(0, [noisy], people["population"], candidates)["mean-logits-pool"]
    assert area(hidden, pool, noisy.inside) < clear - 0.05
