"""FedAvg, FedSPM and FedDRM under DP-SGD: what is summed, what is kept, and the mixing weights that are released."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dp_training import VARIANTS, Exact, context, dp_plan, exchange, records, update

from fedsecure.data.dataset import Dataset
from fedsecure.errors import DataError, LocalProtocolError
from fedsecure.method import ServerContext, sum_contributions
from fedsecure.methods import build_method
from fedsecure.methods.private import MIXING_FLOOR, private_mixing
from fedsecure.mixture.simplex import onto_simplex
from fedsecure.privacy.costs import spends
from fedsecure.privacy.noise import noise_source
from fedsecure.privacy.spend import Spend, merged
from fedsecure.tensors import Tensors


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("noise", ["csprng", "discrete"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rounds_go_through_and_weigh_by_the_public_number_of_records(variant, noise):
    """Of 25 records, 18 take part; how many these are is nowhere to be seen."""
    plan, data = dp_plan(variant, privacy={"steps": 2, "noise": noise}), records(18)
    method = build_method(plan)
    server, local = method.init_server(0), Tensors()
    for round_ in range(2):
        sent = method.broadcast(exchange(plan), server)
        ctx = context(plan, data, noise_source(noise), records=25, round=round_)
        local, made = method.client_update(exchange(plan), sent, local, data, ctx)
        method.schema(exchange(plan)).check(made)
        assert made.summed["records"].tolist() == [25]
        if "mass" in made.summed:
            assert made.summed["mass"].sum() == pytest.approx(25, rel=1e-5)
        server = method.server_update(
            exchange(plan), server, sum_contributions({"one": made}), ServerContext(round_, 0)
        )
        assert len(made.released) == 0
    kept = {"fedspm 1x": {"responsibilities"}, "fedspm Cx": {"responsibilities"}}
    kept["fedspm explicit"] = {"responsibilities", "pi"}
    own = set() if variant == "fedavg" else {"head.alpha", "head.beta"}
    assert set(local) == own | kept.get(variant, set())


def test_a_node_of_whose_records_none_takes_part_trains_on_noise():
    data = records(18)
    none = Dataset(data.x[:0], data.y[:0], data.classes)
    for variant in VARIANTS:
        plan = dp_plan(variant, privacy={"steps": 2})
        _, made = update(plan, none, context(plan, none, records=18))
        assert made.summed["records"].tolist() == [18]
    plan = dp_plan("fedspm 1x", privacy={})
    with pytest.raises(DataError, match="no record"):
        update(plan, none, context(plan, none, records=0))


def test_the_counts_exchange_tells_the_public_number():
    plan, data = dp_plan("fedspm 1x", privacy={}, share_counts=True), records(18)
    made = build_method(plan).client_update("counts", Tensors(), Tensors(), data, context(plan, data, records=25))[1]
    assert made.summed["node_records"].tolist() == [25, 0]


def test_privacy_that_is_not_the_plans_is_refused():
    plan, data = dp_plan("fedavg", privacy={}), records()
    other = dp_plan("fedavg", privacy={"sigma": 2.0})
    for ours, theirs in ((plan, other), (dp_plan("fedavg"), other)):
        with pytest.raises(LocalProtocolError, match="not what was paid for"):
            update(ours, data, context(theirs, data))


class Counting(Exact):
    """Notes each release as (sigma, q); ``sample`` is followed by the release that it was drawn for."""

    def __init__(self):
        super().__init__()
        self.made, self._q = [], 1.0

    def add(self, sums, *, sensitivity, sigma):
        self.made.append(Spend(sigma, self._q, 1))
        self._q = 1.0
        return super().add(sums, sensitivity=sensitivity, sigma=sigma)

    def sample(self, records, q):
        self._q = q
        return super().sample(records, q)


@pytest.mark.parametrize("variant", [*VARIANTS, "fedspm explicit, one component"])
def test_what_is_released_is_what_is_charged(variant):
    more = {"components": 1} if variant.endswith("component") else {}
    plan = dp_plan(variant.split(",")[0], privacy={"batch": 7, "steps": 3, "mixing_every": 2}, **more)
    data = records()
    for round_ in range(3):
        noise = Counting()
        update(plan, data, context(plan, data, noise, records=50, round=round_))
        assert merged(noise.made) == merged(spends(plan, exchange(plan), round_, 50, (6, 6, 6)))


def responsibilities(count=400):
    rng = np.random.default_rng(1)
    return torch.tensor(rng.dirichlet([4.0, 2.0, 1.0], size=count), dtype=torch.float32)


def test_mixing_weights_are_released_with_noise_every_so_many_rounds_and_kept_between():
    plan, data = dp_plan("fedspm explicit", privacy={"mixing_every": 3, "mixing_sigma": 7.0}), records()
    w, before = responsibilities(), torch.tensor([0.2, 0.3, 0.5])
    for round_ in range(7):
        noise = Exact()
        pi = private_mixing(w, before, context(plan, data, noise, round=round_, records=400))
        if round_ % 3:
            assert torch.equal(pi, before)
            assert noise.asked == []
        else:
            assert torch.allclose(pi, w.mean(dim=0), atol=1e-5)
            assert noise.asked == [(1.0, 7.0)]


def test_mixing_weights_that_were_never_released_are_even():
    plan, data, noise = dp_plan("fedspm explicit", privacy={}), records(), Exact()
    pi = private_mixing(responsibilities(), None, context(plan, data, noise, round=4))
    assert torch.allclose(pi, torch.full((3,), 1 / 3))
    assert noise.asked == []


def test_a_record_moves_the_sum_of_responsibilities_by_at_most_one():
    plan, data = dp_plan("fedspm explicit", privacy={}), records()
    w = responsibilities(5)
    w[1], w[2], w[3] = torch.tensor([1.0, 0, 0]), float("nan"), 1e30
    sums = []
    for left_out in (None, *range(5)):
        noise = Exact()
        kept = [j for j in range(5) if j != left_out]
        private_mixing(w[kept], None, context(plan, data, noise))
        sums.append(noise.sums[0])
    moved = [float((sums[0] - s).norm()) for s in sums[1:]]
    assert max(moved) <= 1.0
    assert moved[2] == 0
    assert moved[1] == pytest.approx(1.0, abs=1e-5)


def test_noisy_mixing_weights_end_on_the_simplex_above_the_floor():
    plan, data = dp_plan("fedspm explicit", privacy={"mixing_sigma": 1e4}), records()
    for _ in range(20):
        pi = private_mixing(responsibilities(), None, context(plan, data, records=400))
        assert float(pi.sum()) == pytest.approx(1, abs=1e-6)
        assert float(pi.min()) >= MIXING_FLOOR * (1 - 1e-6)


@pytest.mark.parametrize("floor", [0.0, 0.01, 1 / 3])
def test_the_projection_is_the_nearest_point(floor):
    rng = np.random.default_rng(0)
    for _ in range(30):
        v = torch.tensor(rng.normal(0.3, 0.6, size=3))
        found = onto_simplex(v, floor)
        assert float(found.sum()) == pytest.approx(1)
        assert float(found.min()) >= floor - 1e-12
        grid = torch.tensor(rng.dirichlet([0.7] * 3, size=4000)) * (1 - 3 * floor) + floor
        assert float((found - v).norm()) <= float((grid - v).norm(dim=1).min()) + 1e-9


def test_private_weights_enter_the_gate_in_this_nodes_row_alone(monkeypatch):
    """The gate's constant is log(rho pi): the coordinator's for other nodes, the newly released one for this."""
    plan, data, seen = dp_plan("fedspm explicit", privacy={}), records(), []

    def keep(module, groups, columns, ctx, after_noise=None):
        seen.append(module._constant)
        return {name: p.detach() for name, p in module.named_parameters()}

    monkeypatch.setattr("fedsecure.privacy.dpsgd.dp_sgd", keep)
    local, made = update(plan, data, context(plan, data, Exact()))
    assert torch.allclose(seen[0][1], torch.full((3,), 1 / 6).log())
    assert torch.allclose(seen[0][0], (torch.tensor(local["pi"]) / 2).log(), atol=1e-5)
    assert np.allclose(made.summed["mass"][0], local["pi"] * 18, rtol=1e-5)
    assert not made.summed["mass"][1].any()


def test_training_learns_with_little_noise():
    """Twenty-five noisy steps tell three kinds of records apart."""
    rng = np.random.default_rng(3)
    patterns = rng.uniform(0.1, 0.9, size=(3, 1, 8, 8))
    y = np.arange(600, dtype=np.int64) % 3
    x = np.clip(patterns[y] + rng.normal(0, 0.1, size=(600, 1, 8, 8)), 0, 1).astype(np.float32)
    data = Dataset(x, y, ("a", "b", "c"))
    predict = {"lr": 0.3, "momentum": 0.8}
    plan = dp_plan("feddrm", privacy={"batch": 60, "steps": 25, "sigma": 1.0}, predict=predict)
    method = build_method(plan)
    local, made = update(plan, data, context(plan, data))
    server = method.server_update(
        "update", method.init_server(0), sum_contributions({"one": made}), ServerContext(0, 0)
    )
    given = method.predict("one", method.serving(server), local, data.x)
    assert (given.probabilities.argmax(axis=1) == y).mean() > 0.9
