"""FedSPM and FedDRM as methods: what is trained, what is summed, what stays, what routes."""

import numpy as np
import pytest
import torch

from fedsecure.data.dataset import Dataset
from fedsecure.errors import ConfigError, DataError, LocalProtocolError
from fedsecure.method import Cancelled, RoutedMethod, ServerContext, sum_contributions
from fedsecure.methods import build_method
from fedsecure.models import standardise, to_parameters
from fedsecure.plan.privacy import DPSGDSettings
from fedsecure.plan.size import release_bytes
from fedsecure.privacy.context import PrivacyContext
from fedsecure.privacy.noise import noise_source
from fedsecure.schema import Contribution
from fedsecure.system_metrics import routed_metrics
from fedsecure.tensors import Tensors

VARIANTS = {
    "absorbed": {},
    "separate encoders": {"encoders": "separate", "components": 2},
    "explicit": {"parametrisation": "explicit"},
    "batch": {"e_step": "batch"},
    "explicit batch": {"e_step": "batch", "parametrisation": "explicit"},
    "counts and diagnostics": {"share_counts": True, "route_prior": "density", "diagnostics": "summed"},
    "one component": {"components": 1},
}


def shifted(data, by):
    """The same records with every label moved on by ``by``: another node's labelling."""
    return Dataset(data.x, (data.y + by) % 3, data.classes)


@pytest.fixture
def two(make_data):
    """Two nodes whose records look different and whose labellings differ."""
    one, other = make_data((9, 9, 9)), make_data((8, 7, 9), 1)
    darker = Dataset((1.0 - other.x).astype(np.float32), other.y, other.classes)
    return {"one": one, "two": shifted(darker, 1)}


@pytest.mark.parametrize("variant", VARIANTS, ids=list(VARIANTS))
def test_every_form_trains_routes_and_answers(make_plan, two, run_rounds, variant):
    plan = make_plan("fedspm", **VARIANTS[variant])
    method = build_method(plan)
    assert isinstance(method, RoutedMethod)
    server, local, history = run_rounds(plan, two)
    method.serving_schema().check(Contribution(released=method.serving(server)))
    method.routing_schema().check(Contribution(released=method.routing(server)))
    x = two["one"].x
    scores = method.route(method.routing(server), x)
    assert scores.shape == (27, 2)
    assert scores.dtype == np.float64
    answer = method.predict("two", method.serving(server), local["two"], x)
    assert answer.probabilities.shape == (27, 3)
    assert answer.components.shape == (27, method.components)
    assert np.allclose(answer.probabilities.sum(axis=1), 1, atol=1e-5)
    assert np.allclose(answer.components.sum(axis=1), 1, atol=1e-5)
    first, last = history[-1][4], history[0][4]
    assert all(first[s.name].tobytes() != last[s.name].tobytes() for s in method.shared_specs)


@pytest.mark.parametrize(
    ("name", "settings"),
    [*(("fedspm", s) for s in VARIANTS.values()), ("feddrm", {}), ("feddrm", {"backbone": "shared", "branch": 5})],
)
def test_a_contribution_is_as_large_as_the_plan_foresees(make_plan, two, run_rounds, name, settings):
    plan = make_plan(name, **settings)
    _, _, history = run_rounds(plan, two, rounds=1)
    sent = [c for entry in history if entry[1] == "update" for c in entry[3].values()]
    most = max(sum(a.nbytes for a in c.summed.values()) for c in sent)
    assert release_bytes(plan) - 64 * 4 <= most <= release_bytes(plan) + 8


def test_heads_stay_and_nothing_is_released(make_plan, two, run_rounds):
    plan = make_plan("fedspm")
    _, local, history = run_rounds(plan, two)
    assert set(local["one"]) == {"head.alpha", "head.beta", "responsibilities"}
    assert local["one"]["responsibilities"].shape == (27, 3)
    assert np.allclose(local["one"]["responsibilities"].sum(axis=1), 1, atol=1e-5)
    for _, _, sent, contributions, state, _ in history:
        for contribution in contributions.values():
            assert not len(contribution.released)
            names = set(contribution.summed)
            assert not any(part in name for name in names for part in ("alpha", "beta", "head", "mass", "respons"))
        assert not any("head." in name for name in (*sent, *state))


def test_m_steps_are_sgd_on_both_losses(make_plan, two, client_context):
    """Against autograd by hand, full batches: momentum from zero, decay everywhere but on the bias."""
    settings = {"steps": 3, "batch": 64, "lr": 0.1, "weight_decay": 0.05, "schedule": "constant", "momentum": 0.8}
    plan = make_plan("fedspm", predict=settings, route=settings)
    method = build_method(plan)
    sent = method.broadcast("update", method.init_server(0))
    data = two["two"]
    local, contribution = method.client_update("update", sent, Tensors(), data, client_context("two"))
    shared, heads = to_parameters(sent), method.fresh_heads("cpu")
    x, y = standardise(plan.task, torch.tensor(data.x)), torch.tensor(data.y)

    def logits(p):
        return torch.einsum("nd,mcd->nmc", method.route_features(p, x)[:, 0], p["xi"]) + p["bias"]

    def log_p(p):
        out = torch.einsum("nd,ckd->nck", method.predict_features(p, x)[:, 0], p["beta"]) + p["alpha"]
        return torch.log_softmax(out, dim=2)[torch.arange(len(y)), :, y]

    w = torch.softmax(logits(shared)[:, 1] + log_p({**shared, **heads}), dim=1)
    f1 = lambda p: -(w * log_p(p)).sum() / len(y)  # noqa: E731
    f2 = lambda p: -(w * torch.log_softmax(logits(p).flatten(1), 1).reshape(-1, 2, 3)[:, 1]).sum() / len(y)  # noqa: E731
    theta = {n for n in shared if n.startswith("theta.")}
    for loss, names in ((f1, theta | set(heads)), (f2, set(shared) - theta)):
        p = {n: v.clone().requires_grad_(n in names) for n, v in {**shared, **heads}.items()}
        velocity = {n: torch.zeros_like(p[n]) for n in names}
        for _ in range(3):
            gradients = dict(
                zip(sorted(names), torch.autograd.grad(loss(p), [p[n] for n in sorted(names)]), strict=True)
            )
            with torch.no_grad():
                for n in names:
                    velocity[n] = 0.8 * velocity[n] + gradients[n] + (0.0 if n == "bias" else 0.05) * p[n]
                    p[n] -= 0.1 * velocity[n]
        for n in names:
            found = local[f"head.{n}"] if n in heads else contribution.summed[f"shared.{n}"] / len(y)
            assert np.allclose(found, p[n].detach(), atol=2e-5), n


def test_the_schedule_is_the_pages_cosine(make_plan, two, client_context):
    """A step of one round is lr * (1 + cos(pi t / T)) / 2 times the gradient: half of it in the middle."""
    step = {"steps": 1, "batch": 64, "lr": 0.1, "weight_decay": 0.0}
    plan = make_plan("fedspm", rounds=2, predict=step, route=step)
    method = build_method(plan)
    sent = method.broadcast("update", method.init_server(0))
    moved = []
    for round_ in (0, 1):
        _, made = method.client_update("update", sent, Tensors(), two["one"], client_context("one", round=round_))
        moved.append(made.summed["shared.xi"] / 27 - sent["xi"])
    assert np.allclose(moved[1], 0.5 * moved[0], atol=1e-6)
    assert np.abs(moved[0]).max() > 1e-4


def test_the_new_parameters_are_the_mean_weighted_by_records(make_plan, two, client_context):
    plan = make_plan("fedspm")
    method = build_method(plan)
    server = method.init_server(0)
    sent = method.broadcast("update", server)
    made = {n: method.client_update("update", sent, Tensors(), d, client_context(n))[1] for n, d in two.items()}
    new = method.server_update("update", server, sum_contributions(made), ServerContext(0, 0))
    for name in ("bias", "xi", method.shared_specs[0].name):
        parts = [made[n].summed[f"shared.{name}"].astype(np.float64) for n in ("one", "two")]
        assert np.allclose(new[name], (parts[0] + parts[1]) / (27 + 24), atol=1e-6)


def test_identical_components_stay_identical(make_plan, two, client_context):
    """w = 1/C is a fixed point (page, 2.7): which is why components begin differently."""
    plan = make_plan("fedspm")
    method = build_method(plan)
    server = method.init_server(0)
    alike = np.repeat(server["xi"][:, :1], 3, axis=1)
    server = server.with_({"xi": alike})
    fresh = method.fresh_heads("cpu")
    head = {"head.alpha": fresh["alpha"].numpy(), "head.beta": np.repeat(fresh["beta"].numpy()[:1], 3, axis=0)}
    local = {n: Tensors(head) for n in two}
    for round_ in range(2):
        sent = method.broadcast("update", server)
        made = {}
        for node, data in two.items():
            local[node], made[node] = method.client_update(
                "update", sent, local[node], data, client_context(node, round=round_)
            )
            assert np.allclose(local[node]["responsibilities"], 1 / 3, atol=1e-6)
            for name in ("head.alpha", "head.beta"):
                assert np.allclose(local[node][name], local[node][name][:1], atol=1e-6)
        server = method.server_update("update", server, sum_contributions(made), ServerContext(round_, 0))
        assert np.allclose(server["xi"], server["xi"][:, :1], atol=1e-6)
        assert np.allclose(server["bias"], server["bias"][:, :1], atol=1e-6)
    assert not np.allclose(server["xi"], alike, atol=1e-3)


def test_components_that_begin_differently_part(make_plan, two, run_rounds):
    fresh = build_method(make_plan("fedspm")).fresh_heads("cpu")["beta"]
    assert not torch.allclose(fresh[0], fresh[1], atol=0.05)
    _, local, _ = run_rounds(make_plan("fedspm"), two)
    w = local["one"]["responsibilities"]
    assert np.abs(w - 1 / 3).max() > 0.01


def test_one_component_is_feddrm_bit_for_bit(make_plan, two, run_rounds):
    spm, spm_local, _ = run_rounds(make_plan("fedspm", components=1), two)
    drm, drm_local, _ = run_rounds(make_plan("feddrm"), two)
    assert spm == drm
    assert {n: t.under("head") for n, t in spm_local.items()} == {n: t.under("head") for n, t in drm_local.items()}


def test_a_constant_added_to_all_biases_only_moves_the_biases(make_plan, two, client_context):
    plan = make_plan("fedspm")
    method = build_method(plan)
    server = method.init_server(0)
    moved = server.with_({"bias": server["bias"] + np.float32(3)})
    found = [
        method.client_update("update", method.broadcast("update", s), Tensors(), two["one"], client_context("one"))
        for s in (server, moved)
    ]
    for name, array in found[0][1].summed.items():
        expected = array + 3 * 27 if name == "shared.bias" else array
        assert np.allclose(found[1][1].summed[name], expected, atol=2e-3), name
    scores = [method.route(method.routing(s), two["one"].x) for s in (server, moved)]
    assert np.allclose(scores[1] - scores[0], 3, atol=1e-5)


def test_absorbed_and_explicit_forms_begin_alike(make_plan, two):
    x = two["one"].x
    scores, answers = [], []
    for form in ("absorbed", "explicit"):
        method = build_method(make_plan("fedspm", parametrisation=form, share_counts=True))
        counted = Contribution(summed=Tensors({"node_records": np.array([30, 10])}))
        server = method.server_update(
            "counts", method.init_server(0), sum_contributions({"one": counted}), ServerContext(0, 0)
        )
        scores.append(method.route(method.routing(server), x))
        heads = {f"head.{n}": p.numpy() for n, p in method.fresh_heads("cpu").items()}
        answers.append(method.predict("two", method.serving(server), Tensors(heads), x))
    assert np.allclose(scores[0], scores[1], atol=1e-5)
    assert np.allclose(answers[0].probabilities, answers[1].probabilities, atol=1e-6)


def test_counts_set_the_bias_that_training_starts_from(make_plan):
    method = build_method(make_plan("fedspm", share_counts=True))
    assert method.exchanges == ("counts", "update")
    counted = Contribution(summed=Tensors({"node_records": np.array([30, 10])}))
    aggregate = sum_contributions({"one": counted})
    server = method.server_update("counts", method.init_server(0), aggregate, ServerContext(0, 0))
    assert np.allclose(server["bias"], np.log(np.array([[0.75], [0.25]]) / 3), atol=1e-6)
    assert np.allclose(server["rho"], [0.75, 0.25])
    later = server.with_({"bias": server["bias"] + np.float32(1)})
    again = method.server_update("counts", later, aggregate, ServerContext(1, 0))
    assert again["bias"].tobytes() == later["bias"].tobytes()


def test_a_node_that_is_silent_keeps_its_share(make_plan):
    method = build_method(make_plan("fedspm", share_counts=True))
    context = ServerContext(1, 0)
    both = sum_contributions({"one": Contribution(summed=Tensors({"node_records": np.array([30, 10])}))})
    server = method.server_update("counts", method.init_server(0), both, context)
    alone = sum_contributions({"one": Contribution(summed=Tensors({"node_records": np.array([30, 0])}))})
    assert np.allclose(method.server_update("counts", server, alone, context)["rho"], [0.75, 0.25])


def test_explicit_mixing_is_the_share_of_each_component(make_plan, two, run_rounds):
    plan = make_plan("fedspm", parametrisation="explicit")
    server, _, history = run_rounds(plan, two)
    mass = sum(c.summed["mass"].astype(np.float64) for c in history[-1][3].values())
    assert np.allclose(mass.sum(axis=1), [27, 24], atol=1e-3)
    assert np.allclose(server["mixing"], mass / 51, atol=1e-6)
    assert all(not c.summed["mass"][1 - i].any() for i, c in enumerate(history[-1][3].values()))


def test_summed_diagnostics_are_the_pooled_ones(make_plan, two, run_rounds):
    plan = make_plan("fedspm", diagnostics="summed")
    _, _, history = run_rounds(plan, two)
    reports = history[-1][5]
    pooled = (27 * reports["one"]["log_likelihood"] + 24 * reports["two"]["log_likelihood"]) / 51
    assert reports["server"]["log_likelihood"] == pytest.approx(pooled, abs=1e-5)
    assert 0 < reports["server"]["stationarity"] < 1
    assert 1 <= reports["one"]["effective_components"] <= 3.0001


def test_density_prior_takes_the_nodes_shares_off(make_plan, two, run_rounds):
    server, _, _ = run_rounds(make_plan("fedspm", share_counts=True), two)
    pooled = build_method(make_plan("fedspm", share_counts=True))
    density = build_method(make_plan("fedspm", share_counts=True, route_prior="density"))
    x = two["one"].x
    difference = pooled.route(pooled.routing(server), x) - density.route(density.routing(server), x)
    assert np.allclose(difference, np.log([27 / 51, 24 / 51]), atol=1e-5)


def test_routing_needs_no_head_and_no_prediction_encoder(make_plan):
    method = build_method(make_plan("fedspm"))
    routing = method.routing(method.init_server(0))
    assert {n.split(".")[0] for n in routing} == {"nu", "xi", "bias"}
    shared = build_method(make_plan("feddrm", backbone="shared", branch=5))
    assert {n.split(".")[0] for n in shared.routing(shared.init_server(0))} == {"backbone", "node", "xi", "bias"}


def test_likeliest_component_answers_alone(make_plan, two, run_rounds):
    server, local, _ = run_rounds(make_plan("fedspm"), two)
    x = two["one"].x
    mixture, likeliest = (
        build_method(make_plan("fedspm", prediction=p)).predict(
            "one", build_method(make_plan("fedspm")).serving(server), local["one"], x
        )
        for p in ("mixture", "likeliest")
    )
    assert np.array_equal(mixture.components, likeliest.components)
    assert not np.allclose(mixture.probabilities, likeliest.probabilities)


def test_joint_loss_of_shared_feddrm(make_plan, two, client_context):
    step = {"steps": 1, "batch": 64, "lr": 0.1, "weight_decay": 0.0, "schedule": "constant"}
    plan = make_plan("feddrm", backbone="shared", branch=5, predict=step, label_weight=0.8)
    method = build_method(plan)
    sent = method.broadcast("update", method.init_server(0))
    data = two["two"]
    _, made = method.client_update("update", sent, Tensors(), data, client_context("two"))
    p = {n: v.requires_grad_(True) for n, v in {**to_parameters(sent), **method.fresh_heads("cpu")}.items()}
    x, y = standardise(plan.task, torch.tensor(data.x)), torch.tensor(data.y)
    labels = method.predict_features(p, x)[:, 0] @ p["beta"][0].T + p["alpha"][0]
    nodes = method.route_features(p, x)[:, 0] @ p["xi"][:, 0].T + p["bias"][:, 0]
    ce = torch.nn.functional.cross_entropy
    (0.8 * ce(labels, y) + 0.2 * ce(nodes, torch.ones_like(y))).backward()
    for spec in method.shared_specs:
        expected = sent[spec.name] - 0.1 * p[spec.name].grad.numpy()
        assert np.allclose(made.summed[f"shared.{spec.name}"] / 24, expected, atol=1e-5), spec.name


def test_updates_are_reproducible_and_differ_by_round(make_plan, two, client_context):
    method = build_method(make_plan("fedspm"))
    sent = method.broadcast("update", method.init_server(0))
    made = [
        method.client_update("update", sent, Tensors(), two["one"], client_context("one", round=r))[1]
        for r in (0, 0, 1)
    ]
    assert made[0].summed == made[1].summed
    assert made[0].summed != made[2].summed


def test_a_system_of_contradicting_nodes_is_learned(make_plan, make_data, run_rounds):
    """Two nodes that look different and label contrarily: the routed system answers both, one model could not."""
    predict = {"steps": 15, "batch": 32, "lr": 0.1, "schedule": "constant"}
    route = {"steps": 15, "batch": 32, "lr": 0.02, "momentum": 0.9}
    plan = make_plan("fedspm", rounds=8, components=2, predict=predict, route=route)

    def sets(seed):
        one, other = make_data((20, 20, 20), seed), make_data((20, 20, 20), seed + 1)
        return {"one": one, "two": shifted(Dataset((1 - other.x).astype(np.float32), other.y, other.classes), 1)}

    data, tests = sets(0), sets(10)
    server, local, _ = run_rounds(plan, data)
    found = routed_metrics(build_method(plan), server, local, tests, {n: len(d) for n, d in data.items()})
    assert found["routing_accuracy"] > 0.95
    assert found["system_accuracy"] > 0.9
    assert found["accuracy"] == found["system_accuracy"]


def refusals(method, sent, data):
    wrong = sent.with_({"xi": np.zeros((2, 3, 5), np.float32)})
    empty = Dataset(data.x[:0], data.y[:0], data.classes)
    yield wrong, data, "one", DataError, "tensor xi"
    yield sent.with_({"bias": np.full((2, 3), np.nan, np.float32)}), data, "one", DataError, "tensor bias.*not finite"
    yield sent, empty, "one", DataError, "no record"
    yield sent, Dataset(data.x[:, :, :4], data.y, data.classes), "one", DataError, "records of shape"
    yield sent, Dataset(data.x, data.y, ("a", "c", "b")), "one", DataError, "classes"
    yield sent, data, "three", LocalProtocolError, "node three: the plan's cohort does not name it"


def test_what_does_not_fit_is_refused_by_name(make_plan, two, client_context):
    method = build_method(make_plan("fedspm"))
    sent = method.broadcast("update", method.init_server(0))
    for broadcast, data, node, error, message in refusals(method, sent, two["one"]):
        with pytest.raises(error, match=message):
            method.client_update("update", broadcast, Tensors(), data, client_context(node))
    with pytest.raises(LocalProtocolError, match="has only update"):
        method.client_update("counts", sent, Tensors(), two["one"], client_context("one"))
    unasked = PrivacyContext(DPSGDSettings(kind="dp-sgd", sigma=1.0), (9, 9, 9), 27, noise_source("csprng"))
    with pytest.raises(LocalProtocolError, match="differential privacy is not what was paid for"):
        method.client_update("update", sent, Tensors(), two["one"], client_context("one", privacy=unasked))
    with pytest.raises(Cancelled):
        method.client_update("update", sent, Tensors(), two["one"], client_context("one", cancelled=lambda: True))


def test_divergence_is_refused_by_name(make_plan, two, client_context):
    hot = {"steps": 30, "batch": 8, "lr": 900.0}
    method = build_method(make_plan("fedspm", predict=hot, route=hot))
    sent = method.broadcast("update", method.init_server(0))
    with pytest.raises(DataError, match="training diverged: tensor"):
        method.client_update("update", sent, Tensors(), two["one"], client_context("one"))


def test_queries_that_do_not_fit_are_refused_by_name(make_plan, two, run_rounds):
    plan = make_plan("fedspm")
    method = build_method(plan)
    server, local, _ = run_rounds(plan, two, rounds=1)
    x = two["one"].x.copy()
    x[0, 0, 0, 0] = np.nan
    for wrong, message in ((x, "not finite"), (x[:, :, :4], "shape"), (x.astype(np.float64), "float64")):
        with pytest.raises(DataError, match=f"tensor x: .*{message}"):
            method.route(method.routing(server), wrong)
        with pytest.raises(DataError, match=f"tensor x: .*{message}"):
            method.predict("one", method.serving(server), local["one"], wrong)
    with pytest.raises(DataError, match="node one: has no heads"):
        method.predict("one", method.serving(server), Tensors(), two["one"].x)
    assert method.route(method.routing(server), two["one"].x[:0]).shape == (0, 2)
    assert method.predict("one", method.serving(server), local["one"], two["one"].x[:0]).probabilities.shape == (0, 3)


def test_finite_records_whose_scores_are_not_are_refused_by_name(make_plan, two, run_rounds):
    plan = make_plan("fedspm")
    method = build_method(plan)
    server, local, _ = run_rounds(plan, two, rounds=1)
    x = two["one"].x[:3].copy()
    x[1] = 3e38
    with pytest.raises(DataError, match="^tensor x: record 1: its routing scores are not finite$"):
        method.route(method.routing(server), x)
    with pytest.raises(DataError, match="^tensor x: record 1: its probabilities are not finite$"):
        method.predict("one", method.serving(server), local["one"], x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cohort": {"min_nodes": 1, "nodes": []}}, "cohort.nodes names 0"),
        ({"cohort": {"min_nodes": 1, "nodes": ["one"]}}, "cohort.nodes names 1"),
        ({"route_prior": "density"}, "needs share_counts"),
        ({"router": {"name": "lenet"}}, r"method.router: two 5x5 convolutions leave nothing of 8 pixels"),
        ({"router": {"name": "lenet", "channels": [6, 16]}}, "groups 8 does not divide 6 channels"),
        ({"components": 0}, "components"),
    ],
)
def test_plans_that_make_no_sense_are_refused(make_plan, change, message):
    with pytest.raises(ConfigError, match=message):
        make_plan("fedspm", **change)


def test_shared_feddrm_has_no_router(make_plan):
    with pytest.raises(ConfigError, match="router is set"):
        make_plan("feddrm", backbone="shared", router={"name": "mlp"})
