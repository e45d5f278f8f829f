"""Evaluation against figures worked out by hand."""

import numpy as np
import pytest

from fedsecure.data.dataset import Dataset
from fedsecure.errors import DataError
from fedsecure.evaluation import evaluate, predict
from fedsecure.models import build_model, state_of


@pytest.fixture
def model(make_plan):
    plan = make_plan("fedaf")
    return plan, state_of(build_model(plan.model, plan.task, 1))


def test_figures_are_those_of_the_logits(model, make_data, monkeypatch):
    plan, state = model
    data = make_data((6, 5, 0))
    monkeypatch.setattr("fedsecure.evaluation.CHUNK", 4)
    logits = predict(plan, state, data).numpy().astype(np.float64)
    right = logits.argmax(axis=1) == data.y
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    figures = evaluate(plan, state, data)
    assert figures["accuracy"] == pytest.approx(right.mean())
    assert figures["cross_entropy"] == pytest.approx(-log_p[np.arange(11), data.y].mean())
    assert figures["accuracy.a"] == pytest.approx(right[:6].mean())
    assert figures["accuracy.b"] == pytest.approx(right[6:].mean())
    assert set(figures) == {"accuracy", "cross_entropy", "accuracy.a", "accuracy.b"}


def test_what_cannot_be_evaluated_is_refused(model, make_data):
    plan, state = model
    data = make_data((6, 5, 0))
    with pytest.raises(DataError, match="no records"):
        evaluate(plan, state, make_data((0, 0, 0)))
    with pytest.raises(DataError, match="tensor head.bias: the model has it"):
        evaluate(plan, state.under("blocks").prefixed("blocks"), data)
    with pytest.raises(DataError, match=r"tensor head.bias: shape \[2\]"):
        evaluate(plan, state.with_({"head.bias": np.zeros(2, np.float32)}), data)
    with pytest.raises(DataError, match=r"records of shape \[1, 4, 4\]"):
        evaluate(plan, state, Dataset(data.x[:, :, :4, :4], data.y, data.classes))
