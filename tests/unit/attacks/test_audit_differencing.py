"""A8: what a second answer under one model tells of a person who was erased in between."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.errors import AuditError
from fedsecure.models import draw_parameters
from fedsecure.randomness import torch_generator
from fedsecure_attacks.active.differencing import class_mean, difference, erased_logits
from fedsecure_attacks.active.trap_model import logits_of
from fedsecure_attacks.embedding import family

PEOPLE, ERASURES = 40, 10


@pytest.fixture(scope="module")
def network():
    return family((1, 8, 8), 4, 8)


@pytest.fixture(scope="module")
def w(network):
    return draw_parameters(network, torch_generator(1, "w"))


@pytest.fixture(scope="module")
def people():
    return np.random.default_rng(0).random((PEOPLE, 1, 8, 8), dtype=np.float32)


def test_the_erased_persons_logits_are_recovered_exactly(network, w, people):
    before, after = class_mean(network, w, people), class_mean(network, w, people[1:])
    own = logits_of(network, w, people)
    recovered = erased_logits(before, after, PEOPLE)
    assert np.abs(recovered - own[0]).max() < 1e-4 * np.abs(own).max()
    assert np.abs(own - recovered).max(axis=1).argmin() == 0


def test_everybody_who_is_erased_is_named(network, w, people):
    found = difference(network, w, people, erasures=ERASURES)
    assert (found.named, found.exact) == (ERASURES, True)
    assert found.error < 1e-4


def test_a_clip_of_logits_hides_nobody_but_those_who_reach_it(network, w, people):
    found = difference(network, w, people, erasures=ERASURES, logit_clip=20.0)
    assert (found.named, found.exact) == (ERASURES, True)


def test_under_another_model_nothing_is_recovered(network, w, people):
    other = draw_parameters(network, torch_generator(2, "w"))
    found = difference(network, w, people, erasures=ERASURES, w_after=other)
    assert not found.exact
    assert found.named <= ERASURES // 2
    assert found.error > 1


def test_noise_on_every_release_hides_them(network, w, people):
    """Of the size that differential privacy asks for at sigma 1: the largest logit over n."""
    rng, size = np.random.default_rng(0), float(np.abs(logits_of(network, w, people)).max())

    def noisy(mean, records):
        return mean + rng.normal(scale=size / records, size=mean.shape)

    found = difference(network, w, people, erasures=ERASURES, release=noisy)
    assert not found.exact
    assert found.named <= ERASURES // 2


def test_the_last_record_has_no_after():
    with pytest.raises(AuditError, match="1 records before the erasure"):
        erased_logits(np.zeros(3), np.zeros(3), 1)


def test_the_report_counts_beside_every_rate(network, w, people):
    told = difference(network, w, people, erasures=2).to_json()
    assert told["erasures"] == 2
    assert told["candidates"] == PEOPLE
    assert told["exact"] is True
