"""Between a broadcast model and the records: who sticks out takes no part, and nobody answers twice under one model
with a few records changed in between."""

from __future__ import annotations

import io

import numpy as np
import pytest

from fedsecure.data.dataset import Dataset
from fedsecure.errors import PolicyError
from fedsecure.method import ClientContext
from fedsecure.methods import build_method
from fedsecure.policy import BroadcastRules, Policy, ReleaseRules
from fedsecure.tensors import Tensors
from fedsecure_node.guarding.rereleases import Rereleases, model_digest
from fedsecure_node.guarding.stickingout import without_sticking_out
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.plans.reasons import public_reason
from fedsecure_node.progress import PlainReporter
from fedsecure_node.store.store import Store

POLICY = Policy(format=1)
FIRST, SECOND = "1" * 64, "2" * 64
TARGET = 5


def key(run=FIRST):
    return ExchangeKey(run, 0, 0, 0, "statistics")


@pytest.fixture
def plan(plan_of):
    return plan_of(model={"name": "mlp", "hidden": [32]})


@pytest.fixture
def method(plan):
    return build_method(plan)


@pytest.fixture
def data(data_of):
    return data_of((30, 25, 0))


@pytest.fixture
def honest(method):
    return method.broadcast("statistics", method.init_server(3))


@pytest.fixture
def trap(honest, data):
    """One unit that only the target's record turns on, and logit 0 reads it; the rest is as it was."""
    x = data.x.reshape(len(data), -1).astype(np.float64)
    direction = np.linalg.lstsq(x, np.eye(len(x))[TARGET], rcond=None)[0]  # x @ direction: 1 for the target, else 0
    w = {name: array.copy() for name, array in honest.items()}
    weight, bias = w["model.layers.0.weight"], w["model.layers.0.bias"]
    weight[:], bias[:] = 0, 0
    weight[0] = direction / np.abs(direction).max()
    bias[0] = -0.5 / np.abs(direction).max()
    bias[1], bias[2] = 50, -50
    w["model.layers.1.weight"][:] = 1
    w["model.layers.1.bias"][:] = 0
    w["model.head.weight"][:], w["model.head.bias"][:] = 0, 0
    w["model.head.weight"][0, 0] = 90
    return Tensors(w)


def seen(plan, method, broadcast, data, policy=POLICY):
    out = io.StringIO()
    kept = without_sticking_out(plan, method, key(), broadcast, data, policy, PlainReporter(out), "cpu")
    return kept, out.getvalue()


def test_under_an_honest_model_the_records_are_the_very_same(plan, method, honest, data):
    kept, said = seen(plan, method, honest, data)
    assert kept is data
    assert said == ""


def test_who_is_singled_out_takes_no_part_and_the_node_says_so(plan, method, trap, data):
    kept, said = seen(plan, method, trap, data)
    assert len(kept) == len(data) - 1
    assert (kept.x == np.delete(data.x, TARGET, axis=0)).all()
    assert "WARNING: of 55 records 1 stick out under the broadcast model" in said


def test_what_leaves_is_the_same_with_the_person_and_without(plan, method, trap, data):
    """So that no answer, and no refusal, tells whether the person is there."""
    gone = data.subset(np.delete(np.arange(len(data)), TARGET))
    sent = []
    for records in (data, gone):
        kept, _ = seen(plan, method, trap, records)
        ctx = ClientContext("hospital-a", 0, 7)
        sent.append(method.client_update("statistics", trap, Tensors(), kept, ctx)[1].summed.to_bytes())
    assert sent[0] == sent[1]
    ctx = ClientContext("hospital-a", 0, 7)
    unguarded = method.client_update("statistics", trap, Tensors(), data, ctx)[1].summed
    assert unguarded["mean_logits"][0, 0] > 0.1
    assert Tensors.from_bytes(sent[0])["mean_logits"][0, 0] == 0


def test_a_model_under_which_many_stick_out_is_refused(plan, method, honest, data):
    strict = Policy(format=1, broadcast=BroadcastRules(max_spread=1.0))
    with pytest.raises(PolicyError, match=r"broadcast\.max_left_out: \d+ of 55 records stick out") as caught:
        seen(plan, method, honest, data, strict)
    assert public_reason(caught.value, "round 1") == "round 1: the institution withholds its release"


def test_outputs_that_are_no_numbers(plan, method, honest, data):
    broken = honest.with_({"model.head.bias": np.full(3, 3e38, np.float32)})
    huge = broken.with_({"model.head.weight": np.full((3, 32), 3e38, np.float32)})
    with pytest.raises(PolicyError, match=r"broadcast\.max_left_out: 55 of 55"):
        seen(plan, method, huge, data)


def test_a_method_that_cannot_be_looked_into_is_left_alone(node, data):
    broadcast = Tensors({"model.w": np.zeros(4, np.float32)})
    assert seen(node.plan, node.method, broadcast, data)[0] is data


# A second answer ------------------------------------------------------------------------------------------------------


def without(data, count):
    return data.subset(np.arange(count, len(data)))


@pytest.fixture
def rereleases(node):
    return Rereleases(node.store.answers)


@pytest.fixture
def answered(rereleases, honest, data):
    rereleases.check(honest, data, POLICY)
    rereleases.take(key(), honest, data)


@pytest.mark.parametrize("erased", [1, 9])
def test_no_second_answer_after_a_few_were_erased(rereleases, answered, honest, data, erased):
    few = f"{erased} record{'s' if erased > 1 else ''} changed since this node answered under the same model"
    with pytest.raises(PolicyError, match=rf"release\.min_changed_records: {few} in plan 111111111111") as caught:
        rereleases.check(honest, without(data, erased), POLICY)
    assert "another seed" in caught.value.hint
    assert public_reason(caught.value, "round 1") == "round 1: the institution withholds its release"


def test_the_same_records_ten_fewer_or_another_model_are_answered(rereleases, answered, honest, data, method):
    rereleases.check(honest, data, POLICY)
    shuffled = data.subset(np.random.default_rng(0).permutation(len(data)))
    rereleases.check(honest, shuffled, POLICY)
    rereleases.check(honest, without(data, 10), POLICY)
    rereleases.check(method.broadcast("statistics", method.init_server(4)), without(data, 1), POLICY)
    rereleases.check(Tensors(), without(data, 1), POLICY)
    rereleases.check(honest, without(data, 1), Policy(format=1, release=ReleaseRules(min_changed_records=1)))


def test_one_who_came_or_was_relabelled_counts_as_well(rereleases, honest, data):
    rereleases.take(key(), honest, without(data, 1))
    with pytest.raises(PolicyError, match="1 record changed"):
        rereleases.check(honest, data, POLICY)
    y = data.y.copy()
    y[3] = 2
    rereleases.take(key(), honest, data)
    with pytest.raises(PolicyError, match=r"min_changed_records: [23] records changed"):
        rereleases.check(honest, Dataset(data.x, y, data.classes), POLICY)


def test_one_of_two_copies_is_a_change(rereleases, honest, data):
    twice = data.subset(np.concatenate([[0], np.arange(len(data))]))
    rereleases.take(key(), honest, twice)
    with pytest.raises(PolicyError, match="1 record changed"):
        rereleases.check(honest, data, POLICY)


def test_all_earlier_answers_count_and_a_restart_forgets_none(node, rereleases, answered, honest, data):
    rereleases.take(key(SECOND), honest, without(data, 10))
    node.store.close()
    with Store(node.settings.store) as store:
        again = Rereleases(store.answers)
        for count in (1, 9, 11):
            with pytest.raises(PolicyError, match="min_changed_records"):
                again.check(honest, without(data, count), POLICY)
        again.check(honest, without(data, 10), POLICY)


def test_a_model_is_known_by_its_values_whatever_travels_with_it(honest):
    more = honest.with_({"logits.mean": np.ones((3, 3), np.float32)})
    assert model_digest(more) == model_digest(honest)
    name = "model.layers.0.bias"
    zero = honest.with_({name: np.zeros_like(honest[name])})
    assert model_digest(zero) == model_digest(honest.with_({name: -np.zeros_like(honest[name])}))
    moved = honest[name].copy()
    moved[0] = np.nextafter(moved[0], np.float32(1))
    assert model_digest(honest.with_({name: moved})) != model_digest(honest)
    routed = Tensors({"theta.0.w": np.ones(2, np.float32)})
    assert model_digest(routed) != model_digest(routed.with_({"xi": np.ones(2, np.float32)}))


def test_marks_hold_no_record_and_differ_between_stores(node, rereleases, answered, data, tmp_path):
    (row,) = node.store.database.rows("SELECT marks FROM record_sets")
    assert len(row["marks"]) == 16 * len(data)
    with Store(tmp_path / "other") as other:
        assert other.answers.key() != node.store.answers.key()
        assert other.answers.key() == other.answers.key()
