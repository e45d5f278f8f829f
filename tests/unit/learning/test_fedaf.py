"""FedAF: statistics, their averages, the exchanges of a round, and what continues from one round to the next."""

import numpy as np
import pytest
import torch

from fedsecure.method import Aggregate, sum_contributions
from fedsecure.methods import build_method
from fedsecure.methods import fedaf as fedaf_module
from fedsecure.models import build_model, load_state
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors

SETS = {"one": (5, 0, 7), "two": (0, 3, 9), "three": (6, 0, 12)}  # the floor is 4: nobody holds class 1


@pytest.fixture
def sets(make_data):
    return {node: make_data(counts, i) for i, (node, counts) in enumerate(SETS.items())}


def mean_logits(plan, model, data, c, clip):
    network = build_model(plan.model, plan.task, 0)
    load_state(network, model)
    logits = network(torch.tensor((data.x[data.y == c] - np.float32(0.4)) / np.float32(0.3))).detach().numpy()
    return np.clip(logits.astype(np.float64), -clip, clip).mean(axis=0)


def softmax(z):
    return np.exp(z) / np.exp(z).sum()


@pytest.mark.parametrize("averaging", ["holders", "holders_weighted", "all"])
def test_statistics_are_averaged_over_holders_as_the_plan_says(make_plan, run_rounds, sets, averaging):
    plan = make_plan("fedaf", averaging=averaging, tau=1.5, logit_clip=0.05)
    _, _, history = run_rounds(plan, sets, rounds=1)
    _, exchange, sent, contributions, server, reports = history[0]
    assert exchange == "statistics"
    assert reports["server"]["classes_held"] == 2
    holders = {0: ["one", "three"], 1: [], 2: ["one", "two", "three"]}
    assert server["logits.mask"].tolist() == [True, False, True]
    for c, nodes in holders.items():
        v = {n: mean_logits(plan, sent.under("model"), sets[n], c, 0.05) for n in nodes}
        weight = {n: SETS[n][c] if averaging == "holders_weighted" else 1 for n in nodes}
        divisor = 3 if averaging == "all" else max(1, sum(weight.values()))
        for name, row in (("logits.mean", lambda z: z), ("soft.labels", lambda z: softmax(z / 1.5))):
            expected = sum((weight[n] * row(v[n]) for n in nodes), np.zeros(3)) / divisor
            assert np.allclose(server[name][c], expected, atol=1e-6), (name, c)
    summed = contributions["two"].summed
    assert not summed["mean_logits"][:2].any()
    assert not summed["soft_labels"][:2].any()
    assert summed["class_weight"].tolist() == [0, 0, 9 if averaging == "holders_weighted" else 1]


def test_without_a_clip_logits_pass_as_they_are(make_plan, run_rounds, sets):
    clipped = run_rounds(make_plan("fedaf", logit_clip=0.01), sets, rounds=1)[2][0]
    plain = run_rounds(make_plan("fedaf", logit_clip="none"), sets, rounds=1)[2][0]
    assert np.abs(clipped[4]["logits.mean"]).max() <= 0.01 + 1e-6
    assert np.abs(plain[4]["logits.mean"]).max() > 0.05


def test_a_round_has_two_exchanges_and_statistics_are_of_this_rounds_model(make_plan, run_rounds, sets):
    plan = make_plan("fedaf")
    _, _, history = run_rounds(plan, sets)
    assert [(h[0], h[1]) for h in history] == [
        (0, "statistics"),
        (0, "condensation"),
        (1, "statistics"),
        (1, "condensation"),
    ]
    for statistics, condensation in (history[:2], history[2:]):
        assert set(statistics[2]) == {n for n in condensation[2] if n.startswith("model.")}
        assert condensation[2]["logits.mean"].tobytes() == statistics[4]["logits.mean"].tobytes()
        assert all(len(c.released) == 0 for c in statistics[3].values())
        assert all(len(c.summed) == 0 for c in condensation[3].values())
        v = mean_logits(plan, condensation[2].under("model"), sets["two"], 2, 20.0)
        assert np.allclose(statistics[3]["two"].summed["mean_logits"][2], v, atol=1e-5)


def test_stale_rounds_condense_against_last_rounds_means_and_have_none_in_the_first(make_plan, run_rounds, sets):
    plan = make_plan("fedaf", sync="stale")
    assert build_method(plan).exchanges == ("round",)
    _, _, (first, second) = run_rounds(plan, sets)
    assert not first[2]["logits.mask"].any()
    assert set(first[5]["one"]) == {"dm_start", "dm_end"}
    assert second[2]["logits.mean"].tobytes() == first[4]["logits.mean"].tobytes()
    assert set(second[5]["one"]) == {"dm_start", "dm_end", "swd_start", "swd_end"}
    assert set(first[3]["one"].released) == {"images", "labels"}
    assert set(first[3]["one"].summed) == {"mean_logits", "soft_labels", "class_weight"}


def test_stale_and_two_phase_agree_on_a_first_round_without_the_swd_term(make_plan, run_rounds, sets):
    two_phase = run_rounds(make_plan("fedaf", lambda_loc=0.0), sets, rounds=1)[0]
    stale = run_rounds(make_plan("fedaf", lambda_loc=0.0, sync="stale"), sets, rounds=1)[0]
    assert two_phase == stale


def test_resampling_always_starts_from_the_downloaded_model_and_leaves_it(make_plan, run_rounds, sets, monkeypatch):
    starts = []
    original = fedaf_module.interpolated
    monkeypatch.setattr(
        fedaf_module,
        "interpolated",
        lambda n, w, *a: (starts.append({k: p.clone() for k, p in w.items()}), original(n, w, *a))[1],
    )
    plan = make_plan("fedaf", resample="step")
    _, _, history = run_rounds(plan, {"one": sets["one"]}, rounds=1)
    assert len(starts) == 6
    for start in starts:
        for name, p in start.items():
            assert p.numpy().tobytes() == history[1][2][f"model.{name}"].tobytes()


def test_classes_not_held_have_no_gradient_and_no_image(make_plan, run_rounds, sets):
    """Node two holds class 2 alone: whatever V says of the others, its images are the same."""
    plan = make_plan("fedaf")
    method = build_method(plan)
    _, _, history = run_rounds(plan, sets, rounds=1)
    sent = history[1][2]
    other = sent["logits.mean"].copy()
    other[:2] += 5.0
    from_other = sent.with_({"logits.mean": other, "logits.mask": np.array([False, True, True])})

    def images(broadcast, client_seed=3):
        ctx = fedaf_module.ClientContext("two", 0, client_seed)
        return method.client_update("condensation", broadcast, Tensors(), sets["two"], ctx)[1].released

    assert images(sent)["labels"].tolist() == [2, 2]
    assert images(sent) == images(from_other)
    other[2] += 5.0
    assert images(sent) != images(sent.with_({"logits.mean": other}))


def test_the_model_goes_on_in_round_two(make_plan, run_rounds, sets):
    plan = make_plan("fedaf")
    server, _, history = run_rounds(plan, sets)
    fresh = build_method(plan).init_server(0)
    after_one = history[1][4]
    assert history[0][2].under("model") == build_method(plan).broadcast("statistics", history[0][4]).under("model")
    assert history[2][2].under("model") == after_one.under("model") != fresh.under("model")
    assert server.under("model") != after_one.under("model")


@pytest.mark.parametrize("warm", [True, False])
def test_condensed_data_continue_with_a_warm_start(make_plan, run_rounds, sets, warm):
    _, local, history = run_rounds(make_plan("fedaf", warm_start=warm, lr_img=1e-9), sets)
    first, second = (history[i][3]["one"].released for i in (1, 3))
    assert np.allclose(first["images"], second["images"], atol=1e-4) == warm
    kept = second.prefixed("condensed") if warm else Tensors()
    assert local["one"] == kept


def test_a_class_no_longer_held_is_left_behind_and_a_new_one_begins(make_plan, run_rounds, make_data):
    plan = make_plan("fedaf", lr_img=1e-9)
    method = build_method(plan)
    _, local, history = run_rounds(plan, {"one": make_data((5, 0, 7))}, rounds=1)
    sent = history[1][2]
    ctx = fedaf_module.ClientContext("one", 1, 3)
    _, contribution = method.client_update("condensation", sent, local["one"], make_data((0, 6, 7)), ctx)
    released = contribution.released
    assert released["labels"].tolist() == [1, 1, 2, 2]
    assert np.allclose(released["images"][2:], local["one"]["condensed.images"][2:], atol=1e-4)


#: A server's training; a variant changes one of its settings.
SERVER = {"epochs": 2, "batch": 4, "optimizer": "sgd", "lr": 1e-3}
#: What every variant is compared with: two rounds that are over soon, and in which every setting has a part.
BASE = {"steps": 4, "resample_interval": 2, "server": SERVER}
VARIANTS = [
    {"resample": "step"},
    {"resample": "round"},
    {"resample_interval": 3},
    {"gamma": 0.5},
    {"lambda_loc": 5.0},
    {"lambda_glob": 5.0},
    {"lambda_glob": 0.0},
    {"tau": 0.5},
    {"swd": "p2sq"},
    {"swd": "mc", "num_projections": 3},
    {"sync": "stale"},
    {"averaging": "all"},
    {"averaging": "holders_weighted"},
    {"lgkm": "full"},
    {"warm_start": False},
    {"logit_clip": 0.01},
    {"real_means": "batch", "real_batch": 3},
    {"init": "avg", "init_n": 3},
    {"init": "real"},
    {"image_optimizer": "adam", "lr_img": 0.1},
    {"momentum_img": 0.0},
    {"augment": "dsa"},
    {"ipc": 3},
    {"min_count": 6},
    {"server": {**SERVER, "optimizer": "adam"}},
    {"server": {**SERVER, "sampling": "stratified"}},
    {"server": {**SERVER, "momentum": 0.0}},
]


@pytest.fixture(scope="module")
def of_the_base():
    """Keeps the model of ``BASE`` once a test has made it."""
    return {}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())).replace(" ", ""))
def test_every_setting_matters_and_is_reproducible(make_plan, run_rounds, sets, variant, of_the_base):
    two = {node: sets[node] for node in ("one", "two")}
    if not of_the_base:
        of_the_base["model"] = run_rounds(make_plan("fedaf", **BASE), two)[0].under("model")
    plan = make_plan("fedaf", **(BASE | variant))
    server = run_rounds(plan, two)[0]
    assert server == run_rounds(plan, two)[0]
    assert server.under("model") != of_the_base["model"]


def test_nodes_are_gathered_in_the_order_of_their_names(make_plan, run_rounds, sets):
    backwards = dict(reversed(sets.items()))
    assert run_rounds(make_plan("fedaf"), sets)[0] == run_rounds(make_plan("fedaf"), backwards)[0]


def test_a_cohort_that_shrinks_between_the_exchanges_goes_on(make_plan, run_rounds, sets):
    plan = make_plan("fedaf")
    method = build_method(plan)
    _, _, history = run_rounds(plan, sets, rounds=1)
    released = history[1][3]["three"].released
    aggregate = sum_contributions({"three": Contribution(released=released)})
    new = method.server_update("condensation", history[0][4], aggregate, fedaf_module.ServerContext(0, 0))
    assert new.under("model") != history[0][4].under("model")


def test_sums_that_come_back_from_fixed_point_are_read_alike(make_plan, run_rounds, sets):
    plan = make_plan("fedaf", averaging="holders_weighted")
    method = build_method(plan)
    _, _, history = run_rounds(plan, sets, rounds=1)
    exact = sum_contributions(history[0][3])
    rounded = {n: np.round(a * 2.0**24) / 2.0**24 for n, a in exact.summed.items()}
    again = method.server_update(
        "statistics",
        method.init_server(0),
        Aggregate(Tensors(rounded), exact.released, exact.contributors),
        fedaf_module.ServerContext(0, 0),
    )
    assert np.allclose(again["logits.mean"], history[0][4]["logits.mean"], atol=1e-6)
    assert np.array_equal(again["logits.mask"], history[0][4]["logits.mask"])


@pytest.mark.parametrize("table", [False, True])
def test_fedaf_learns_from_nodes_that_hold_different_classes(make_plan, make_data, run_rounds, accuracy, table):
    plan = make_plan(
        "fedaf",
        table=table,
        steps=60,
        image_optimizer="adam",
        lr_img=0.1,
        resample_interval=20,
        server={"epochs": 40, "batch": 8, "optimizer": "sgd", "lr": 0.02},
    )
    sets = {"one": make_data((20, 0, 0), table=table), "two": make_data((0, 20, 20), 1, table=table)}
    server, _, history = run_rounds(plan, sets)
    assert accuracy(plan, server, make_data((30, 30, 30), 2, table=table)) > 0.9
    assert history[1][5]["server"]["condensed"] == 6
    assert history[1][5]["one"]["dm_end"] < history[1][5]["one"]["dm_start"]
