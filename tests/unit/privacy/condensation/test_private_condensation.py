"""FedAF and FedDM under differential privacy: every look at the records is one that was charged, and all else follows
from what those looks gave."""

import itertools

import numpy as np
import pytest

from fedsecure.errors import LocalProtocolError
from fedsecure.methods import build_method
from fedsecure.privacy.costs import spends
from fedsecure.tensors import Tensors

A, B = {"kind": "release", "sigma": 1.0}, {"kind": "per-step", "sigma": 1.0, "batch": 6}
#: (method, settings of it, [privacy])
FORMS = {
    "fedaf, A": ("fedaf", {}, A),
    "fedaf, A, three networks": ("fedaf", {}, {**A, "networks": 3}),
    "fedaf, A, stale": ("fedaf", {"sync": "stale"}, {**A, "networks": 2, "projection": 5}),
    "fedaf, A, augmented": ("fedaf", {"augment": "dsa"}, A),
    "fedaf, B": ("fedaf", {}, B),
    "fedaf, B, stale": ("fedaf", {"sync": "stale", "resample": "step"}, B),
    "feddm, A": ("feddm", {}, {**A, "networks": 2}),
    "feddm, A, warm": ("feddm", {"warm_start": True}, A),
    "feddm, B": ("feddm", {"augment": "dsa"}, {**B, "projection": 5}),
}


@pytest.fixture(params=FORMS)
def plan(request, make_plan):
    name, settings, privacy = FORMS[request.param]
    return make_plan(name, privacy, **settings)


def drive(plan, context, data, noise, *, counts=None, rounds=None):
    """One node alone: [(round, exchange, broadcast, state before, contribution, state after, reports)]."""
    method, local, server = build_method(plan), Tensors(), build_method(plan).init_server(0)
    known = {"logits.mean": np.eye(3, dtype=np.float32), "logits.mask": np.ones(3, np.bool_)}
    history = []
    for round_ in range(plan.rounds if rounds is None else rounds):
        for exchange in method.exchanges:
            sent = method.broadcast(exchange, server.with_(known))
            ctx = context(plan, data, noise, counts, round_)
            before = local
            local, contribution = method.client_update(exchange, sent, local, data, ctx)
            method.schema(exchange).check(contribution)
            history.append((round_, exchange, sent, before, contribution, local, ctx.report.__self__))
    return history


def test_every_exchange_makes_exactly_the_releases_that_it_costs(plan, context, make_data, watching):
    data, counts = make_data((9, 5, 12)), (10, 0, 11)
    method, local, server = build_method(plan), Tensors(), build_method(plan).init_server(0)
    for round_, exchange in itertools.product(range(plan.rounds), method.exchanges):
        watching.calls.clear()
        watching.samples.clear()
        sent = method.broadcast(exchange, server)
        local, _ = method.client_update(exchange, sent, local, data, context(plan, data, watching, counts, round_))
        charged = spends(plan, exchange, round_, len(data), counts)
        assert len(watching.calls) == sum(spend.steps for spend in charged)
        assert all((sensitivity, sigma) == (1.0, 1.0) for _, sensitivity, sigma in watching.calls)
        assert all(len(shapes) == 1 and shapes[0][0] == 2 for shapes, _, _ in watching.calls)  # both classes in one
        sampled = [spend for spend in charged if spend.q < 1]
        assert len(watching.samples) == 2 * sum(spend.steps for spend in sampled)
        assert watching.samples == [6 / 10, 6 / 11] * (len(watching.samples) // 2)
        assert {spend.q for spend in sampled} <= {6 / 10}


def test_all_that_a_node_sends_keeps_and_reports_follows_from_its_noisy_sums(plan, context, make_data, blind):
    """With a noise source that hides the sums altogether, other records change nothing, bit for bit."""
    counts = (10, 0, 11)
    one = drive(plan, context, make_data((9, 5, 12)), blind, counts=counts)
    other = drive(plan, context, make_data((3, 16, 7), seed=8), type(blind)(), counts=counts)
    assert len(one) == len(other) > 0
    for left, right in zip(one, other, strict=True):
        assert left[4] == right[4]
        assert left[5] == right[5]
        assert left[6] == right[6]


def test_without_hiding_them_other_records_do(plan, context, make_data, watching):
    """The test above can fail."""
    counts, quiet = (10, 0, 11), plan.model_copy(update={"privacy": plan.privacy.model_copy(update={"sigma": 1e-9})})
    one = drive(quiet, context, make_data((9, 5, 12)), watching, counts=counts, rounds=1)
    other = drive(quiet, context, make_data((9, 5, 12), seed=8), watching, counts=counts, rounds=1)
    assert one[-1][4].released["labels"].tolist() == other[-1][4].released["labels"].tolist()
    assert np.abs(one[-1][4].released["images"] - other[-1][4].released["images"]).max() > 1e-3


def test_noisy_counts_decide_which_classes_are_held(plan, context, make_data, watching):
    data = make_data((0, 30, 12))  # no record of the first class, many of the second
    (*_, (_, _, _, _, contribution, _, _)) = drive(plan, context, data, watching, counts=(7, 3, 11), rounds=1)
    assert contribution.released["labels"].tolist() == [0, 0, 2, 2]
    assert np.isfinite(contribution.released["images"]).all()


def test_a_node_that_counts_too_few_everywhere_reads_nothing(plan, context, make_data, watching):
    history = drive(plan, context, make_data((9, 5, 12)), watching, counts=(3, 0, 2), rounds=1)
    assert len(history[-1][4].released["labels"]) == 0
    assert watching.calls == []
    assert watching.samples == []


def test_an_exchange_computed_again_from_where_it_led_releases_nothing_again(make_plan, context, make_data, watching):
    for name, sync in (("fedaf", {"sync": "two_phase"}), ("fedaf", {"sync": "stale"}), ("feddm", {})):
        plan, data = make_plan(name, {**A, "networks": 2}, **sync), make_data((9, 5, 12))
        _, exchange, sent, _, contribution, local, _ = drive(plan, context, data, watching, rounds=1)[0]
        watching.calls.clear()
        method = build_method(plan)
        again = method.client_update(exchange, sent, local, data, context(plan, data, watching))[1]
        assert watching.calls == []
        assert again.summed == contribution.summed
        method.client_update(exchange, sent, local, data, context(plan, data, watching, round=1))
        assert len(watching.calls) == 2
        other_model = sent.with_({n: a * np.float32(0.5) for n, a in sent.items() if n.startswith("model.")})
        method.client_update(exchange, other_model, local, data, context(plan, data, watching))
        assert len(watching.calls) == 4


def test_condensation_only_reads_what_statistics_left(make_plan, context, make_data, watching, blind):
    plan, data = make_plan("fedaf", A), make_data((9, 5, 12))
    (_, statistics, condensation) = (None, *drive(plan, context, data, watching, rounds=1))
    kept = condensation[3]
    assert {name.split(".")[0] for name in kept} == {"noisy"}
    method = build_method(plan)
    nothing = make_data((0, 0, 0))
    ctx = context(plan, nothing, blind, counts=(9, 5, 12))
    again = method.client_update("condensation", condensation[2], kept, nothing, ctx)[1]
    assert again == condensation[4]
    assert blind.calls == []
    assert statistics[4].summed["class_weight"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("warm", [True, False])
def test_a_node_that_missed_the_statistics_releases_what_it_had_or_nothing(
    make_plan, context, make_data, watching, warm
):
    plan, data = make_plan("fedaf", A, warm_start=warm), make_data((9, 5, 12))
    _, _, sent, _, first, local, _ = drive(plan, context, data, watching, rounds=1)[1]
    watching.calls.clear()
    method = build_method(plan)
    kept, second = method.client_update("condensation", sent, local, data, context(plan, data, watching, round=1))
    method.schema("condensation").check(second)
    assert second.released == first.released if warm else len(second.released["labels"]) == 0
    assert kept.under("condensed") == (first.released if warm else Tensors())
    fresh = method.client_update("condensation", sent, Tensors(), data, context(plan, data, watching, round=1))[1]
    assert fresh.released["images"].shape == (0, 1, 8, 8)
    assert watching.calls == []


@pytest.mark.parametrize("averaging", ["holders", "holders_weighted"])
@pytest.mark.parametrize("kind", [A, B])
def test_noise_does_not_take_statistics_out_of_the_schemas_range(
    make_plan, context, make_data, watching, averaging, kind
):
    plan = make_plan("fedaf", {**kind, "sigma": 1e5}, averaging=averaging, logit_clip=2.0)
    _, _, _, _, contribution, _, _ = drive(
        plan, context, make_data((9, 5, 12)), watching, counts=(10, 0, 11), rounds=1
    )[0]
    weight = (10, 0, 11) if averaging == "holders_weighted" else (1, 0, 1)
    assert contribution.summed["class_weight"].tolist() == list(weight)
    mean = contribution.summed["mean_logits"]
    assert not mean[1].any()
    assert np.abs(mean[0]).max() == pytest.approx(2.0 * weight[0])
    soft = contribution.summed["soft_labels"][[0, 2]].sum(axis=1)
    assert soft == pytest.approx([weight[0], weight[2]], rel=1e-5)


def test_statistics_are_the_mean_logits_of_the_rounds_networks(make_plan, context, make_data, watching):
    """With gamma = 1 every network is the downloaded one, so they are the statistics without privacy."""
    data = make_data((9, 5, 12))
    private = make_plan("fedaf", {**A, "sigma": 1e-9, "networks": 2}, gamma=1.0)
    plain = private.model_copy(update={"privacy": None})
    noisy = drive(private, context, data, watching, rounds=1)[0][4].summed
    method = build_method(plain)
    ctx = context(private, data, watching)
    ctx = type(ctx)(node=ctx.node, round=0, seed=ctx.seed)
    exact = method.client_update(
        "statistics", method.broadcast("statistics", method.init_server(0)), Tensors(), data, ctx
    )
    for name, array in exact[1].summed.items():
        assert np.allclose(noisy[name], array, atol=0.05), name
    assert np.abs(noisy["mean_logits"]).max() > 0.1


def test_an_update_that_was_charged_for_less_is_refused(make_plan, context, make_data, watching, monkeypatch):
    monkeypatch.setattr("fedsecure.methods.noisy.spends", lambda *_: ())
    for name, privacy in itertools.product(("fedaf", "feddm"), (A, B)):
        with pytest.raises(LocalProtocolError, match="was not paid for"):
            drive(make_plan(name, privacy), context, make_data((9, 5, 12)), watching, rounds=1)
    assert watching.calls == []
