"""A masked simulation is the plain one, sum by sum within the bound of fixed point, for every method that sums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsecure.cli import run
from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.errors import SecAggError
from fedsecure.masked_plan import masked_exchanges
from fedsecure.masked_simulation import MaskedSums
from fedsecure.method import Aggregate, sum_contributions
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.schema import Contribution
from fedsecure.secagg.cohort.threshold import Threshold
from fedsecure.secagg.values.words import own_rows
from fedsecure.simulation import Simulator, simulate
from fedsecure.tensors import Tensors

CLASSES = ("a", "b", "c")
FAST = {"ipc": 2, "steps": 3, "min_count": 4, "server": {"epochs": 2, "batch": 8}}
ROUTED = {"predict": {"steps": 3, "batch": 8}, "route": {"steps": 3, "batch": 8}}
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg", "local_epochs": 1},
    "fedspm-absorbed": {"name": "fedspm", "components": 2, **ROUTED},
    "fedspm-explicit": {
        "name": "fedspm",
        "components": 2,
        "parametrisation": "explicit",
        "share_counts": True,
        "diagnostics": "summed",
        **ROUTED,
    },
    "fedspm-separate": {"name": "fedspm", "components": 2, "encoders": "separate", **ROUTED},
    "feddrm": {"name": "feddrm", **ROUTED},
    "feddrm-shared": {"name": "feddrm", "backbone": "shared", **ROUTED},
    "fedaf-holders": {"name": "fedaf", "averaging": "holders", **FAST},
    "fedaf-holders-weighted": {"name": "fedaf", "averaging": "holders_weighted", **FAST},
    "fedaf-stale": {"name": "fedaf", "sync": "stale", **FAST},
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def plan(method: Mapping[str, Any], *, nodes: int = 3, secagg: str = "required", **changes: Any) -> Plan:
    raw = {
        "format": 1,
        "name": "p",
        "rounds": 2,
        "secagg": secagg,
        "task": {"kind": "image", "classes": CLASSES, "shape": [1, 8, 8]},
        "model": {"name": "convnet", "depth": 2, "width": 4},
        "method": dict(method),
        "cohort": {"min_nodes": Threshold(nodes).required, "nodes": [f"node-{i}" for i in range(nodes)]},
        **changes,
    }
    return validate(Plan, raw, "plan")


def data(nodes: int = 3) -> dict[str, Dataset]:
    rng = np.random.default_rng(0)
    sets = {}
    for i in range(nodes):
        y = np.repeat(np.array((i % 3, (i + 1) % 3), dtype=np.int64), 6 + i)
        x = (rng.random((len(y), 1, 8, 8)) * 0.5 + 0.2 * y[:, None, None, None]).astype(np.float32)
        sets[f"node-{i}"] = Dataset(x, y, CLASSES)
    return sets


class Compared(MaskedSums):
    """Masked sums that are held against plain ones as they are made: each element within n 2^-(f+1), whole numbers
    exactly, and what a float64 sum itself rounds."""

    exchanges: set[str]

    def add(
        self, exchange: str, round_: int, attempt: int, contributions: Mapping[str, Contribution], state: bytes
    ) -> Aggregate:
        found = super().add(exchange, round_, attempt, contributions, state)
        due = sum_contributions(contributions)
        assert found.contributors == due.contributors
        assert found.released == due.released
        assert set(found.summed) == set(due.summed)
        for stream in self.streams(exchange):
            bound = len(contributions) * stream.spec.error_bound
            for place in stream.places:
                masked, plain = found.summed[place.name], due.summed[place.name]
                assert (masked.dtype, masked.shape) == (plain.dtype, plain.shape)
                if place.is_integer:
                    assert np.array_equal(masked, plain)
                else:
                    assert np.all(np.abs(masked - plain) <= bound + 1e-15 * np.abs(plain)), place.name
            self.exchanges.add(exchange)
        return found


@every_method
def test_every_sum_is_the_plain_one_within_the_bound(method: dict[str, Any]) -> None:
    p = plan(method, nodes=4)
    built = build_method(p)
    simulator = Simulator(p, built, data(4))
    compared = Compared(p, built)
    compared.exchanges = set()
    simulator._masks = compared
    masked = list(simulator.rounds())
    assert compared.exchanges == set(masked_exchanges(p, built))
    plain = simulate(plan(method, nodes=4, secagg="off"), built, data(4))
    assert len(masked) == len(plain.rounds)
    assert set(simulator.server) == set(plain.server)
    for name, due in plain.server.items():
        np.testing.assert_allclose(simulator.server[name], due, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("nodes", [3, 50, 64])
@every_method
def test_every_exchange_has_streams_that_a_ring_holds(method: dict[str, Any], nodes: int) -> None:
    p = plan(method, nodes=nodes)
    built = build_method(p)
    found = masked_exchanges(p, built)
    assert set(found) == {exchange for exchange in built.exchanges if built.schema(exchange).summed}
    for exchange, streams in found.items():
        names = sorted(place.name for stream in streams for place in stream.places)
        assert names == sorted(spec.name for spec in built.schema(exchange).summed)
        for stream in streams:
            stream.spec.check(nodes)
            assert stream.spec.error_bound <= 2.0**-20 or all(place.is_integer for place in stream.places)


@pytest.mark.parametrize("name", ["fedspm-explicit", "fedaf-holders"])
def test_fresh_keys_the_same_bits_and_resumed_the_same_bits(name: str) -> None:
    p = plan(METHODS[name])
    whole = simulate(p, build_method(p), data())
    assert simulate(p, build_method(p), data()).server == whole.server
    first = Simulator(p, build_method(p), data())
    next(first.rounds())
    second = Simulator(p, build_method(p), data())
    tensors, machine = first.checkpoint()
    second.resume(Tensors.from_bytes(tensors.to_bytes()), machine)
    assert [report.round for report in second.rounds()] == [1]
    assert second.server == whole.server


def test_bytes_up_are_those_of_the_masked_vectors() -> None:
    p = plan(METHODS["fedavg"])
    method = build_method(p)
    (streams,) = masked_exchanges(p, method).values()
    (report, _) = simulate(p, method, data()).rounds
    vectors = sum(stream.spec.nbytes for stream in streams)
    assert vectors < report.bytes_up["node-0"] < vectors + 100


def test_an_optional_plan_is_simulated_plain() -> None:
    method = METHODS["fedavg"]
    optional, off = (plan(method, secagg=secagg) for secagg in ("optional", "off"))
    assert simulate(optional, build_method(optional), data()).server == simulate(off, build_method(off), data()).server


def test_a_round_is_never_summed_twice() -> None:
    p = plan(METHODS["fedavg"])
    method = build_method(p)
    simulator = Simulator(p, method, data())
    next(simulator.rounds())
    assert simulator._masks is not None
    with pytest.raises(SecAggError, match="ALREADY_RELEASED"):
        simulator._masks.add("round", 0, 1, simulator._contributions, bytes(32))


def test_no_sum_is_over_fewer_nodes_than_the_plan_asks_for() -> None:
    """Five nodes, t = 4: with four contributions a plan of five gets no sum, and one of four does."""
    for least in (5, 4):
        p = plan(METHODS["fedavg"], nodes=5, cohort={"min_nodes": least, "nodes": [f"node-{i}" for i in range(5)]})
        simulator = Simulator(p, build_method(p), data(5))
        next(simulator.rounds())
        four = dict(list(simulator._contributions.items())[:4])
        sums = MaskedSums(p, build_method(p))
        if least == 5:
            with pytest.raises(SecAggError, match="^TOO_FEW_NODES: 4 nodes invited where 5 are needed"):
                sums.add("round", 0, 0, four, bytes(32))
        else:
            assert len(sums.add("round", 0, 0, four, bytes(32)).contributors) == 4


class Kept(MaskedSums):
    """Masked sums that keep each node's contribution."""

    contributions: list[tuple[str, Mapping[str, Contribution]]]

    def add(
        self, exchange: str, round_: int, attempt: int, contributions: Mapping[str, Contribution], state: bytes
    ) -> Aggregate:
        self.contributions.append((exchange, dict(contributions)))
        return super().add(exchange, round_, attempt, contributions, state)


@every_method
def test_what_is_said_to_lie_open_in_a_sum_does_and_nothing_else(method: dict[str, Any]) -> None:
    """A sum hides nothing of a tensor in which no two nodes fill one element; the words name exactly those."""
    p = plan(method)
    built = build_method(p)
    simulator = Simulator(p, built, data())
    kept = Kept(p, built)
    kept.contributions = []
    simulator._masks = kept
    next(simulator.rounds())
    for exchange, contributions in kept.contributions:
        streams = kept.streams(exchange)
        said, found = set(own_rows(streams)), set()
        for place in (place for stream in streams for place in stream.places):
            filled = sum((c.summed[place.name] != 0).astype(int) for c in contributions.values())
            if np.max(filled) == 1:
                found.add(place.name)
        assert found == said


COMMAND = """
format = 1
name = "tiny"
rounds = 1
secagg = "{secagg}"
model = {{name = "mlp", hidden = [8]}}
method = {{name = "fedavg", local_steps = 2}}
[task]
kind = "image"
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
shape = [1, 8, 8]
[cohort]
min_nodes = 3
nodes = ["node-1", "node-2", "node-3"]
[simulation]
data = {{kind = "digits"}}
partition = {{kind = "dirichlet", nodes = 3, alpha = 1.0}}
limit = 200
"""


@pytest.mark.parametrize(
    ("secagg", "masked", "words"),
    [
        ("required", True, "masked, by the real protocol"),
        ("optional", False, "not masked, as nobody signed a manifest"),
    ],
)
def test_the_command_says_whether_sums_were_masked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], secagg: str, masked: bool, words: str
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(COMMAND.format(secagg=secagg))
    assert run(["simulate", str(path), "--out", str(tmp_path / "out"), "--device", "cpu", "--threads", "1"]) == 0
    assert f"  sums: {words}" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "result.json").read_text())["masked"] is masked
