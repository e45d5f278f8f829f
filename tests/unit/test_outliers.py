"""Who sticks out under a model: by robust spread, in single outputs and their differences."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.outliers import spreads

PEOPLE = 60


def outputs_of(seed=0, people=PEOPLE, width=5):
    return np.random.default_rng(seed).normal(size=(people, width)).astype(np.float32)


def one_class(rows):
    return spreads(rows, np.zeros(len(rows), np.int64))


def test_nobody_sticks_out_of_a_crowd():
    assert max(one_class(outputs_of(seed)).max() for seed in range(20)) < 6


@pytest.mark.parametrize("far", [12.0, -12.0])
def test_one_who_is_far_is_told_by_as_much(far):
    rows = outputs_of()
    rows[7, 2] = far
    found = one_class(rows)
    assert found.argmax() == 7
    assert 8 < found[7] < 16
    assert np.delete(found, 7).max() < 6


def test_where_all_agree_anybody_else_is_infinitely_far():
    rows = np.zeros((PEOPLE, 5), np.float32)
    assert one_class(rows).max() == 0
    rows[3, 1] = 1e-3
    assert one_class(rows)[3] == np.inf
    assert (np.delete(one_class(rows), 3) == 0).all()


def test_rounding_is_no_spread():
    rows = np.ones((PEOPLE, 5), np.float32)
    rows[3, 1] += np.float32(1e-6)
    assert one_class(rows).max() == 0


def test_who_is_like_the_rest_in_each_output_but_not_in_their_difference():
    rows = outputs_of()
    rows[:, 1] = rows[:, 0] + 0.01 * outputs_of(1)[:, 0]
    rows[9, :2] = (1.0, -1.0)
    assert one_class(rows)[9] > 50
    assert spreads(rows[:, :1], np.zeros(PEOPLE, np.int64)).max() < 6


def test_two_traps_in_one_output_do_not_hide_each_other():
    rows = outputs_of()
    rows[[4, 5], 0] = 30.0
    assert set(np.flatnonzero(one_class(rows) > 8)) == {4, 5}


def test_a_few_values_that_repeat_are_no_trap():
    """A table: six in ten rows are equal, the rest differ; without a second measure everybody else would stick out."""
    rows = np.zeros((PEOPLE, 1), np.float32)
    rows[36:] = outputs_of(people=24, width=1)
    assert one_class(rows).max() < 8


def test_classes_are_their_own_crowds_and_tiny_ones_tell_nothing():
    rows, y = outputs_of(), np.repeat([0, 1], PEOPLE // 2)
    rows[y == 1] += 50
    assert spreads(rows, y).max() < 8
    rows[0], y = 1000.0, y.copy()
    y[:3] = 2
    assert spreads(rows, y)[:3].max() == 0


def test_a_wide_network_is_looked_at_without_pairs():
    rows = outputs_of(width=40)
    rows[2, 39] = 20
    assert one_class(rows).argmax() == 2
