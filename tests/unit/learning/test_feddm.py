"""FedDM: what a node releases and how the coordinator trains on it."""

import numpy as np
import pytest

from fedsecure.errors import DataError
from fedsecure.method import Aggregate, ServerContext
from fedsecure.methods import build_method
from fedsecure.methods import feddm as feddm_module
from fedsecure.methods.held import held_classes
from fedsecure.tensors import Tensors


def test_held_classes_are_those_at_the_floor():
    assert held_classes(np.array([0, 9, 10, 11]), 10) == (2, 3)
    assert held_classes(np.array([0, 1, 0]), 1) == (1,)


@pytest.fixture
def update(client_context):
    def run(plan, data, local=None, ctx=None):
        method = build_method(plan)
        sent = method.broadcast("round", method.init_server(0))
        return method.client_update("round", sent, local or Tensors(), data, ctx or client_context())

    return run


def test_only_held_classes_are_released(make_plan, make_data, update, client_context):
    plan = make_plan("feddm", ipc=3)
    ctx = client_context()
    local, contribution = update(plan, make_data((5, 3, 9)), ctx=ctx)  # the floor is 4
    build_method(plan).schema("round").check(contribution)
    assert contribution.released["labels"].tolist() == [0, 0, 0, 2, 2, 2]
    assert contribution.released["images"].shape == (6, 1, 8, 8)
    assert len(contribution.summed) == 0
    assert len(local) == 0
    assert set(ctx.report.__self__) == {"dm_start", "dm_end", "logits_start", "logits_end"}


def test_a_class_below_the_floor_leaves_no_trace(make_plan, make_data, update):
    plan = make_plan("feddm")
    data, other = make_data((5, 3, 9)), make_data((5, 3, 9))
    changed = np.where((other.y == 1)[:, None, None, None], np.float32(0.9), other.x)
    object.__setattr__(other, "x", changed)
    assert update(plan, data)[1].released == update(plan, other)[1].released


@pytest.mark.parametrize("name", ["feddm", "fedaf"])
def test_a_node_that_holds_no_class_releases_nothing_and_a_run_of_such_nodes_ends(
    make_plan, make_data, run_rounds, name
):
    plan = make_plan(name)
    with pytest.raises(DataError, match="no node holds a class with method.min_count = 4") as caught:
        run_rounds(plan, {"one": make_data((3, 0, 3)), "two": make_data((0, 0, 0))})
    assert caught.value.hint
    _, _, history = run_rounds(plan, {"one": make_data((3, 0, 3)), "two": make_data((0, 5, 0))}, rounds=1)
    released = history[-1][3]["one"].released
    assert released["images"].shape == (0, 1, 8, 8)
    assert released["labels"].shape == (0,)


def test_the_network_is_perturbed_around_the_downloaded_model(make_plan, make_data, update, monkeypatch):
    norms, starts = [], []
    original = feddm_module.perturbed

    def spy(w, rho, generator):
        moved = original(w, rho, generator)
        starts.append({n: p.clone() for n, p in w.items()})
        norms.append(sum(float((moved[n] - p).double().square().sum()) for n, p in w.items()) ** 0.5)
        return moved

    monkeypatch.setattr(feddm_module, "perturbed", spy)
    update(make_plan("feddm", rho=5.0, resample="step"), make_data((5, 3, 9)))
    assert norms == pytest.approx([5.0] * 6, rel=1e-5)
    assert all(all((s[n] == starts[0][n]).all() for n in s) for s in starts)


def test_images_begin_anew_each_round_unless_told_otherwise(make_plan, make_data, run_rounds):
    data = {"one": make_data((5, 5, 9))}
    frozen = {"lr_img": 1e-9, "rounds": 2}  # nothing moves: what is released is where it began
    for warm, same in ((False, False), (True, True)):
        _, local, history = run_rounds(make_plan("feddm", warm_start=warm, **frozen), data)
        first, second = (h[3]["one"].released["images"] for h in history)
        assert np.allclose(first, second, atol=1e-4) == same
        assert (len(local["one"]) > 0) == warm


@pytest.mark.parametrize("init", ["noise", "avg", "real"])
def test_images_begin_where_the_plan_says(make_plan, make_data, update, init):
    data = make_data((5, 0, 9))
    plan = make_plan("feddm", init=init, lr_img=1e-9, ipc=2, init_n=4)
    images = update(plan, data)[1].released["images"][:2]
    x = (data.x[data.y == 0] - 0.4) / 0.3
    distance = [np.abs(x - image).max(axis=(1, 2, 3)).min() for image in images]
    if init == "real":
        assert max(distance) < 1e-4
    else:
        assert min(distance) > 0.05
    left_out = [np.abs((x.sum(axis=0) - x[i]) / 4 - images[0]).max() for i in range(5)]
    assert (min(left_out) < 1e-4) == (init == "avg")


def test_a_round_is_reproducible(make_plan, make_data, run_rounds):
    plan, data = make_plan("feddm", real_means="batch", resample="step"), {"one": make_data((5, 5, 9))}
    assert run_rounds(plan, data)[0] == run_rounds(plan, data)[0]


def test_another_number_of_images_than_ipc_is_refused_by_node_and_class(make_plan):
    plan = make_plan("feddm", ipc=2)
    method = build_method(plan)
    released = Tensors({"images": np.zeros((3, 1, 8, 8), np.float32), "labels": np.array([1, 1, 1])})
    aggregate = Aggregate(Tensors(), {"mallory": released}, ("mallory",))
    with pytest.raises(DataError, match="labels of node mallory: 3 images of class 1 where 2 are due"):
        method.server_update("round", method.init_server(0), aggregate, ServerContext(0, 0))


def test_feddm_learns(make_plan, make_data, run_rounds, accuracy):
    plan = make_plan(
        "feddm",
        steps=60,
        image_optimizer="adam",
        lr_img=0.1,
        server={"epochs": 40, "batch": 8, "optimizer": "sgd", "lr": 0.02},
    )
    server, _, _ = run_rounds(plan, {"one": make_data((20, 0, 0)), "two": make_data((0, 20, 20), 1)})
    assert accuracy(plan, server, make_data((30, 30, 30), 2)) > 0.9
