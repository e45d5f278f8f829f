"""A7: models that are made to single a person out isolate them in one round; with a minimum of records, a clip and
noise they do not, and a node that leaves out who sticks out is not told from one that never had the person."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from fedsecure.errors import AuditError
from fedsecure.models import draw_parameters
from fedsecure.models.mlp import MLP
from fedsecure.outliers import spreads
from fedsecure.randomness import torch_generator
from fedsecure_attacks.active.audit import audit_active
from fedsecure_attacks.active.defences import DEFENCES, Defences, release_under
from fedsecure_attacks.active.isolation import isolation, nothing_released, trials
from fedsecure_attacks.active.trap_model import forged_unit, logits_of, trap_model
from fedsecure_attacks.embedding import family
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.verdict import Thresholds, Word

#: Digit 0, 2, 3: one target each.
DIGITS, TRIALS, RECORDS = (0, 2, 3), 1000, 50


@pytest.fixture(scope="module")
def people():
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x = (digits.images / 16).astype(np.float32)[order][:, None]
    y = digits.target.astype(np.int64)[order]
    return Labelled("pool", x[:900], y[:900]), Labelled("population", x[900:], y[900:])


@pytest.fixture(scope="module")
def rows():
    with torch.device("meta"):
        return MLP(64, 10, (64,), None)


@pytest.fixture(scope="module")
def trained(people, rows):
    """For each digit a trap, by 150 steps of Adam, and the class's people with the target first."""
    pool, population = people
    start = draw_parameters(rows, torch_generator(0, "start"))
    made = []
    for c in DIGITS:
        here = pool.x[pool.y == c]
        made.append((trap_model(rows, start, here[:1], population.x[population.y == c]), here))
    return made


@pytest.fixture(scope="module")
def forged(people, rows):
    pool, population = people
    return [(forged_unit(rows, pool.x[pool.y == c][0], population, c), pool.x[pool.y == c]) for c in DIGITS]


def told(traps, defences, count=TRIALS):
    each = []
    for number, (trap, here) in enumerate(traps):
        released = release_under(defences, trap.network, trap.w, here, seed=1)
        if released is not None:
            rng = np.random.default_rng(number)
            each.append(trials(released, 0, trap.coordinates[0], defences.records, count, rng))
    return isolation(each) if each else nothing_released("nothing", len(traps))


def test_150_steps_isolate_one_person_of_fifty_in_one_round(trained):
    found = told(trained, Defences(records=RECORDS))
    assert found.auc > 0.99
    assert found.isolates
    assert found.word(Thresholds()) is Word.LEAK
    assert max(trap.largest for trap, _ in trained) < 5  # no bound on parameters shows it


def test_a_convolutional_network_is_trapped_as_well(people):
    pool, population = people
    network = family((1, 8, 8), 10, 16)
    start = draw_parameters(network, torch_generator(0, "start"))
    here = pool.x[pool.y == 0]
    trap = trap_model(network, start, here[:1], population.x[population.y == 0])
    found = told([(trap, here)], Defences(records=RECORDS))
    assert found.auc > 0.9
    assert found.word(Thresholds()) is Word.LEAK


def test_a_unit_written_by_hand_is_zero_for_everybody_else(forged):
    for trap, here in forged:
        logits = trap.logits(here)[:, 0]
        assert logits[0] > 1
        assert np.abs(logits[1:]).max() < 1e-3 * logits[0]
    found = told(forged, Defences(records=RECORDS))
    assert (found.auc, found.isolates) == (1.0, True)


def test_a_trap_for_one_tells_nothing_of_another(trained):
    found = told([(trap, here[1:]) for trap, here in trained], Defences(records=RECORDS))
    assert not found.isolates
    assert found.auc < 0.7


def test_one_model_traps_several_people_of_a_class(people, rows):
    pool, population = people
    start = draw_parameters(rows, torch_generator(0, "start"))
    here = pool.x[pool.y == 3]
    trap = trap_model(rows, start, here[:5], population.x[population.y == 3])
    assert trap.coordinates == (0, 1, 2, 3, 4)
    groups = [np.concatenate([here[j : j + 1], here[5:]]) for j in range(5)]
    each = []
    for j, group in enumerate(groups):
        released = release_under(Defences(), rows, trap.w, group, seed=1)
        each.append(trials(released, 0, j, RECORDS, TRIALS, np.random.default_rng(j)))
    found = isolation(each)
    assert found.auc > 0.9
    assert found.targets == 5


def test_a_clip_alone_does_nothing(trained):
    assert told(trained, Defences(logit_clip=20.0)).isolates


def test_below_the_minimum_of_records_nothing_is_released(trained):
    few = Defences(records=5, min_records=10)
    assert all(release_under(few, trap.network, trap.w, here, 1) is None for trap, here in trained)
    found = told(trained, few)
    assert (found.auc, found.isolates, found.word(Thresholds())) == (0.5, False, Word.NO_LEAK_DETECTED)
    assert told(trained, Defences(records=5)).auc > 0.99  # and without the minimum, few are told best


def test_with_minimum_clip_and_noise_there_is_no_leak(trained):
    found = told(trained, DEFENCES["minimum, clip and noise, sigma 8"])
    assert found.word(Thresholds()) is not Word.LEAK
    assert not found.isolates
    weak, strong = told(trained, Defences(sigma=0.3)), told(trained, Defences(sigma=2.0))
    assert weak.auc > strong.auc > found.auc - 0.02


@pytest.mark.parametrize("which", ["trained", "forged"])
def test_who_sticks_out_is_left_out_and_nothing_is_told(which, request):
    traps = request.getfixturevalue(which)
    found = told(traps, DEFENCES["records that stick out are left out"], count=1000)
    assert not found.isolates
    assert abs(found.auc - 0.5) < 0.05


def test_the_policys_spread_lies_between_honest_models_and_traps(people, rows, trained, forged):
    from fedsecure.policy import BroadcastRules

    pool, _ = people
    limit = BroadcastRules().max_spread
    honest = draw_parameters(rows, torch_generator(3, "honest"))
    assert spreads(logits_of(rows, honest, pool.x), pool.y).max() < limit
    for trap, here in (*trained, *forged):
        found = spreads(trap.logits(here), np.zeros(len(here), np.int64))
        assert found[0] > 2 * limit


def test_the_bound_on_parameters_is_half_a_guard(forged):
    from fedsecure.policy import BroadcastRules

    assert BroadcastRules().max_abs_parameter <= 100
    bounded = Defences(max_parameter=50.0)
    assert all(release_under(bounded, trap.network, trap.w, here, 1) is None for trap, here in forged)


def test_the_findings_of_an_audit(people):
    pool, population = people
    few = {"none": DEFENCES["none"], "noise": DEFENCES["minimum, clip and noise, sigma 8"]}
    asked = {"targets": 2, "count": 1000, "condensings": 2, "defences": few}
    found = audit_active(pool, population, seed=1, **asked)
    assert set(found) >= {"trap_model", "trap_statistics", "differencing", "defences"}
    assert found["trap_model"]["forged unit"]["one_round_isolates_one_person"] is True
    assert found["defences"]["noise"]["trained"]["verdict"] != "LEAK"
    assert found["differencing"]["the same model"]["exact"] is True
    assert found["differencing"]["another model"]["exact"] is False
    assert found["trap_statistics"]["honest model, forged averages"]["condensings"] == 4
    text = json.dumps(found, allow_nan=False, sort_keys=True)
    assert "safe" not in text.lower()


def test_what_makes_it_impossible_is_one_line(people, rows):
    pool, population = people
    start = draw_parameters(rows, torch_generator(0, "start"))
    with pytest.raises(AuditError, match="11 targets"):
        trap_model(rows, start, pool.x[:11], population.x)
    with pytest.raises(AuditError, match="nobody else"):
        trap_model(rows, start, pool.x[:1], population.x[:0])
    with pytest.raises(AuditError, match="no class has 51 people"):
        audit_active(pool.take(np.arange(100)), population, seed=0)
