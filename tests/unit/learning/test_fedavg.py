"""FedAvg and FedProx."""

import numpy as np
import pytest
import torch

from fedsecure.data.dataset import Dataset
from fedsecure.errors import DataError, LocalProtocolError
from fedsecure.method import Cancelled, Method, ServerContext, sum_contributions
from fedsecure.methods import build_method
from fedsecure.methods.fedavg import learning_rate
from fedsecure.models import build_model, load_state, standardise
from fedsecure.plan.privacy import DPSGDSettings
from fedsecure.privacy.context import PrivacyContext
from fedsecure.privacy.noise import noise_source
from fedsecure.tensors import Tensors


@pytest.fixture
def update(client_context):
    """update(plan, data, ctx=None): one client update from a fresh server; (broadcast, contribution)."""

    def run(plan, data, ctx=None):
        method = build_method(plan)
        sent = method.broadcast("round", method.init_server(0))
        local, contribution = method.client_update("round", sent, Tensors(), data, ctx or client_context())
        method.schema("round").check(contribution)
        assert len(local) == 0
        return sent, contribution

    return run


def by_hand(plan, sent, data, steps, lr, mu=0.0):
    """Full-batch steps with momentum and weight decay, through a real module and autograd."""
    network = build_model(plan.model, plan.task, 0)
    load_state(network, sent.under("model"))
    start = [p.detach().clone() for p in network.parameters()]
    velocity = [torch.zeros_like(p) for p in start]
    s = plan.method
    for _ in range(steps):
        network.zero_grad()
        x = standardise(plan.task, torch.tensor(data.x))
        torch.nn.functional.cross_entropy(network(x), torch.tensor(data.y)).backward()
        with torch.no_grad():
            for p, p0, v in zip(network.parameters(), start, velocity, strict=True):
                gradient = p.grad + mu * (p - p0) + s.weight_decay * p
                v.mul_(s.momentum).add_(gradient)
                p.sub_(lr * v)
    return {f"model.{n}": p.detach().numpy() for n, p in network.named_parameters()}


@pytest.mark.parametrize("mu", [0.0, 5.0])
@pytest.mark.parametrize("length", [{"local_epochs": 3}, {"local_steps": 3}])
def test_training_is_sgd_with_momentum_decay_and_the_proximal_term(make_plan, make_data, update, length, mu):
    data = make_data((5, 3, 4))
    plan = make_plan("fedavg", batch=64, lr=0.1, weight_decay=0.01, prox_mu=mu, **length)
    sent, contribution = update(plan, data)
    expected = by_hand(plan, sent, data, 3, 0.1, mu)
    assert contribution.summed["records"].tolist() == [12]
    for name, w in expected.items():
        assert np.allclose(contribution.summed[name] / 12, w, atol=1e-5), name


def test_the_proximal_term_holds_the_model_back(make_plan, make_data, update):
    moved = []
    for mu in (0.0, 50.0):
        sent, contribution = update(make_plan("fedavg", local_epochs=10, prox_mu=mu), make_data((9, 3, 4)))
        moved.append(sum(float(np.square(contribution.summed[n] / 16 - sent[n]).sum()) for n in sent))
    assert moved[1] < 0.5 * moved[0]


def test_cosine_schedule_falls_over_the_rounds(make_plan):
    settings = make_plan("fedavg", schedule="cosine", lr=0.2).method
    rates = [learning_rate(settings, r, 4) for r in range(4)]
    assert rates == pytest.approx([0.2, 0.1 * (1 + np.sqrt(0.5)), 0.1, 0.1 * (1 - np.sqrt(0.5))])
    assert learning_rate(make_plan("fedavg", lr=0.2).method, 3, 4) == 0.2


def test_the_schedule_is_used(make_plan, make_data, update, client_context):
    data = make_data((5, 3, 4))
    plan = make_plan("fedavg", batch=64, lr=0.1, schedule="cosine", local_epochs=1, rounds=2)
    sent, contribution = update(plan, data, client_context(round=1))
    expected = by_hand(plan, sent, data, 1, 0.05)
    assert np.allclose(contribution.summed["model.head.weight"] / 12, expected["model.head.weight"], atol=1e-6)


def test_the_new_model_is_the_mean_weighted_by_records(make_plan, make_data, client_context):
    plan = make_plan("fedavg", local_epochs=1)
    method = build_method(plan)
    server = method.init_server(0)
    sent = method.broadcast("round", server)
    sets = {"a": make_data((5, 0, 0)), "b": make_data((0, 9, 6), 1), "c": make_data((0, 0, 0))}
    contributions = {
        node: method.client_update("round", sent, Tensors(), data, client_context(node))[1]
        for node, data in sets.items()
    }
    reports = {}
    ctx = ServerContext(0, 0, report=reports.__setitem__)
    new = method.server_update("round", server, sum_contributions(contributions), ctx)
    w = {k: contributions[k].summed["model.head.weight"] / max(1, len(sets[k])) for k in "ab"}
    assert np.allclose(new["model.head.weight"], (5 * w["a"] + 15 * w["b"]) / 20, atol=1e-6)
    assert method.model(new).header() == new.under("model").header()
    assert reports["model_change"] > 0


def test_a_node_without_records_contributes_zeros(make_plan, make_data, update):
    _, contribution = update(make_plan("fedavg", local_epochs=1), make_data((0, 0, 0)))
    assert all(not array.any() for array in contribution.summed.values())


def test_no_records_anywhere_is_an_error(make_plan, make_data, update):
    plan = make_plan("fedavg", local_epochs=1)
    _, contribution = update(plan, make_data((0, 0, 0)))
    method = build_method(plan)
    with pytest.raises(DataError, match="no node of the cohort has any record"):
        method.server_update(
            "round", method.init_server(0), sum_contributions({"a": contribution}), ServerContext(0, 0)
        )


def test_updates_are_reproducible_and_differ_by_round_and_seed(make_plan, make_data, update, client_context):
    plan, data = make_plan("fedavg", local_epochs=2, batch=4), make_data((5, 3, 4))
    first = update(plan, data)[1].summed
    assert update(plan, data)[1].summed == first
    assert update(plan, data, client_context(round=1))[1].summed != first
    assert update(plan, data, client_context(seed=6))[1].summed != first


def test_progress_cancel_and_local_report(make_plan, make_data, update, client_context):
    plan, data, seen = make_plan("fedavg", local_steps=5, batch=5), make_data((5, 3, 4)), []
    ctx = client_context(progress=lambda *step: seen.append(step), cancelled=lambda: len(seen) >= 5)
    update(plan, data, ctx)
    assert seen == [(i, 5) for i in range(1, 6)]
    assert set(ctx.report.__self__) == {"loss"}
    with pytest.raises(Cancelled):
        update(plan, data, ctx)


def test_divergence_names_a_tensor(make_plan, make_data, update):
    with pytest.raises(DataError, match=r"training diverged: tensor model\.") as caught:
        update(make_plan("fedavg", local_epochs=30, lr=900.0), make_data((5, 3, 4)))
    assert "learning rate" in caught.value.hint


@pytest.mark.parametrize(("name", "exchanges"), [("fedavg", 1), ("feddm", 1), ("fedaf", 2)])
def test_the_registry_builds_methods(make_plan, name, exchanges):
    method = build_method(make_plan(name))
    assert isinstance(method, Method)
    assert len(method.exchanges) == exchanges
    assert all(method.schema(e).max_nbytes > 0 for e in method.exchanges)


@pytest.mark.parametrize("name", ["fedavg", "feddm", "fedaf"])
def test_what_is_not_the_plans_is_refused(make_plan, make_data, client_context, name):
    method, data = build_method(make_plan(name)), make_data((5, 4, 4))
    exchange = method.exchanges[0]
    sent = method.broadcast(exchange, method.init_server(0))

    def update(exchange=exchange, sent=sent, data=data, **ctx):
        return method.client_update(exchange, sent, Tensors(), data, client_context(**ctx))

    with pytest.raises(LocalProtocolError, match="exchange 'other'"):
        update(exchange="other")
    with pytest.raises(LocalProtocolError, match="exchange 'other'"):
        method.schema("other")
    unasked = PrivacyContext(DPSGDSettings(kind="dp-sgd", sigma=1.0), (5, 4, 4), 13, noise_source("csprng"))
    with pytest.raises(LocalProtocolError, match="differential privacy is not what was paid for"):
        update(privacy=unasked)
    with pytest.raises(DataError, match="its classes are not the plan's"):
        update(data=Dataset(data.x, data.y, ("b", "a", "c")))
    with pytest.raises(DataError, match=r"records of shape \[1, 4, 4\] where \[1, 8, 8\]"):
        update(data=Dataset(data.x[:, :, :4, :4], data.y, data.classes))
    with pytest.raises(DataError, match="tensor model.head.bias: 3 of 3 values are not finite"):
        update(sent=sent.with_({"model.head.bias": np.full(3, np.nan, np.float32)}))
    with pytest.raises(DataError, match="tensor model.extra"):
        update(sent=sent.with_({"model.extra": np.zeros(1, np.float32)}))
    with pytest.raises(DataError, match=r"tensor model.head.bias: shape \[2\]"):
        update(sent=sent.with_({"model.head.bias": np.zeros(2, np.float32)}))
