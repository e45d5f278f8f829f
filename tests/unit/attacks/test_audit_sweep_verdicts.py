"""The verdict on cells: what leaks, what does not, and which control fails of what was tampered with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsecure_attacks.mechanism.costs import Clock
from fedsecure_attacks.mechanism.deciding import judge
from fedsecure_attacks.mechanism.grid import Cell, deployed_cells, left_out, matched_cells, shared_residual, steps_for
from fedsecure_attacks.mechanism.measures import AttackOnMechanism, measure_attack
from fedsecure_attacks.mechanism.noisy import accounted_epsilon
from fedsecure_attacks.mechanism.people import named
from fedsecure_attacks.mechanism.results import CellResult
from fedsecure_attacks.mechanism.scoring import Scored
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.mechanism.shadows import make_shadow
from fedsecure_attacks.mechanism.sweep import Finished
from fedsecure_attacks.mechanism.sweepfile import SweepSettings, load_sweep, merged
from fedsecure_attacks.splits import coin
from fedsecure_attacks.verdict import Control, Thresholds, Word

CELL = Cell("as deployed", Setting())
LABELS = np.repeat(np.arange(10), 100)


def finished(effects, seed=0, shadows=8, n=1000, **more):
    """A cell whose attacks ``effects`` have an effect size d' each."""
    rng = np.random.default_rng(seed)
    labels = np.resize(LABELS, n)
    scored = []
    for _ in range(shadows):
        inside = rng.random(n) < 0.5
        scored.append(Scored({name: rng.normal(size=n) + d * inside for name, d in effects.items()}, inside))
    attacks = {name: measure_attack(name, scored, labels, 0.01) for name in effects}
    return Finished(CELL, CellResult(CELL.setting, 1.0, 100.0, attacks, members=n // 2 * shadows, **more), False)


def word(*cells, controls=()):
    return judge(cells, Thresholds(), controls).overall.word


def test_a_leak_is_told_by_whatever_attack_sees_it():
    assert word(finished({"combined": 0.5, "loss": 0.0})) is Word.LEAK
    judged = judge(
        [finished({"combined": 0.0, "loss": 0.0}), finished({"combined": 0.0, "loss": 0.5}, 1)], Thresholds(), ()
    )
    assert judged.overall.word is Word.LEAK
    assert judged.worst == 1
    assert [v.word for v in judged.cells] == [Word.NO_LEAK_DETECTED, Word.LEAK]
    assert "1 of 2 cells leak" in judged.overall.reason


def test_nothing_found_is_said_with_its_power_and_with_people_enough():
    verdict = judge([finished({"combined": 0.0})], Thresholds(), ()).overall
    assert verdict.word is Word.NO_LEAK_DETECTED
    assert "power: a rate above 0.0" in verdict.reason
    assert "safe" not in verdict.reason
    assert word(finished({"combined": 0.0}, n=100)) is Word.INCONCLUSIVE


def test_no_more_than_one_sweep_in_twenty_is_a_false_leak():
    """Two cells with three attacks each, without any leak, 25 times: five false ones have a chance of 0.007 at 0.05."""
    names = dict.fromkeys(["combined", "a", "b"], 0.0)
    false = sum(word(*(finished(names, 2 * seed + i, 4, 250) for i in range(2))) is Word.LEAK for seed in range(25))
    assert false <= 4


def test_released_members_are_a_leak_by_themselves():
    judged = judge([finished({"combined": 0.0}, copies=3)], Thresholds(), ())
    assert judged.overall.word is Word.LEAK
    assert "3 of 4000 members were released bit for bit" in judged.overall.reason


def test_a_negated_score_is_invalid_and_named():
    verdict = judge([finished({"combined": 0.5, "mean-tracing": -0.5})], Thresholds(), ()).overall
    assert verdict.word is Word.INVALID
    assert "control direction: members score below others under mean-tracing" in verdict.reason


@pytest.mark.parametrize("whose", ["the cell's", "the audit's"])
def test_a_failed_control_makes_a_leak_invalid(whose):
    failed = Control("null", False, "found where nothing is")
    own, all_of = ((failed,), ()) if whose == "the cell's" else ((), (failed,))
    verdict = judge([finished({"combined": 0.5}, controls=own)], Thresholds(), all_of).overall
    assert verdict.word is Word.INVALID
    assert "control null: found where nothing is" in verdict.reason


def test_results_are_read_as_they_were_written():
    attack = finished({"combined": 0.3}).result.attacks["combined"]
    assert AttackOnMechanism.from_json(attack.to_json()) == attack
    few = finished({"combined": 0.3}, n=60).result.attacks["combined"]
    assert AttackOnMechanism.from_json(few.to_json()) == few


def test_curves_rise_within_their_bands_from_one_other_to_all():
    curve = finished({"combined": 0.5}).result.attacks["combined"].curve
    assert curve.fpr[-1] == curve.tpr[-1] == 1.0
    assert list(curve.tpr) == sorted(curve.tpr)
    assert all(low <= tpr <= high for low, tpr, high in zip(curve.low, curve.tpr, curve.high, strict=True))


def test_every_combination_is_a_cell_and_noise_has_one_curve():
    sweep = merged({"grid": {"ipc": [1, 5], "init": ["noise", "real"], "sigma": [0.0, 1.0]}}, {}, "t")
    cells = deployed_cells(sweep)
    assert len(cells) == len(set(cells)) == 8
    level = shared_residual(sweep, {cell: float(i + 1) for i, cell in enumerate(cells)})
    matched = matched_cells(sweep, level)
    assert len(matched) == 4
    assert {cell.setting.residual for cell in matched} == {level} == {2.0}
    assert len(left_out(sweep)) == 2
    federated = merged({"grid": {"init": ["noise", "real"], "sigma": [0.0, 1.0]}, "federated": {}}, {}, "t")
    assert len(deployed_cells(federated)) == 15  # no plan takes noise with records


def test_federated_runs_match_by_their_number_of_steps():
    federated = merged({"grid": {"ipc": [5]}, "federated": {}, "condensation": {"steps": 40}}, {}, "t")
    (cell,) = matched_cells(federated, 10.0)
    reached = {80: 6.0, 40: 12.0}
    assert steps_for(cell, lambda setting: reached[setting.steps]).setting.steps == 80
    assert steps_for(cell, lambda setting: 99.0).setting.steps == 80
    reached = {40: 7.0, 20: 9.0, 10: 11.0}
    fitted = steps_for(cell, lambda setting: reached[setting.steps]).setting
    assert (fitted.steps, fitted.residual) == (20, 0.0)


def test_noise_hides_and_is_made_again_bit_for_bit():
    people = named("digits", 0, (200, 100, 50), Path())
    inside, setting = coin(200, 0, 0), Setting(ipc=1, steps=5, width=4, sigma=1.0)
    first, again = (make_shadow(people.pool, inside, setting, 0, 0) for _ in range(2))
    assert first.released.digest() == again.released.digest()
    assert make_shadow(people.pool, inside, setting, 1, 0).released.digest() != first.released.digest()
    assert make_shadow(people.pool, inside, replace(setting, sigma=1e5), 0, 0).residual > first.residual
    epsilons = [accounted_epsilon(replace(setting, sigma=sigma), 100)[0] for sigma in (0.5, 1.0, 2.0)]
    assert epsilons == sorted(epsilons, reverse=True)


def test_named_people_are_in_one_part_each_and_none_twice():
    people = named("digits", 3, (1000, 500, 200), Path())
    keys = [set(part.fingerprints()) for part in (people.pool, people.population, people.test)]
    assert [len(each) for each in keys] == [1000, 500, 200]
    assert not (keys[0] & keys[1] | keys[0] & keys[2] | keys[1] & keys[2])
    others, strangers = set(people.others.fingerprints()), set(people.strangers.fingerprints())
    assert not others & strangers
    assert len(others | strangers) == 500


def test_the_time_that_is_left_follows_from_what_was_computed():
    now = [0.0]
    clock = Clock(100.0, lambda: now[0])
    clock.add(20.0, worked=False)
    assert clock.left is None
    now[0] = 10.0
    clock.add(10.0, worked=True)
    assert clock.left == pytest.approx(70.0)


def test_the_demonstration_is_a_sweep():
    root = Path(__file__).resolve().parents[3]
    sweep = merged(load_sweep(root / "benchmarks" / "audit_demo.toml"), {}, "demo")
    assert isinstance(sweep, SweepSettings)
    assert len(deployed_cells(sweep)) == 30
    assert sweep.grid.ipc == (1, 5, 10, 20, 50)
    assert sweep.grid.init == ("noise", "avg", "real")
