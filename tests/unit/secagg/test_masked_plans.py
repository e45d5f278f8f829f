"""Which exchanges are masked, what a node remembers of its sessions, and what a plan must say for masks."""

from __future__ import annotations

import pytest

from fedsecure.errors import ConfigError, SecAggError
from fedsecure.schema import Schema, TensorSpec
from fedsecure.secagg.machines.memory import MemoryOnly
from fedsecure.secagg.values.masked import check_masked, masked_streams
from fedsecure.secagg.values.streams import derive_streams

WEIGHTS = TensorSpec("model.w", "float32", (3, 4), -1e3, 1e3, "parameters")
COUNT = TensorSpec("records", "int64", (), 0, 1e6, "records", "records")
SUMMING, RELEASING = Schema((WEIGHTS, COUNT)), Schema((), (WEIGHTS,))
NAMES = [f"n{i}" for i in range(5)]


def test_streams_are_named_for_method_and_exchange():
    streams = masked_streams(SUMMING, method="fedavg", exchange="update", nodes=5)
    assert streams == derive_streams(SUMMING, prefix="fedavg.update", nodes=5)
    assert all(stream.spec.name.startswith("fedavg.update.") for stream in streams)
    assert masked_streams(RELEASING, method="fedavg", exchange="update", nodes=5) == ()


def test_only_what_sums_is_masked():
    found = check_masked({"update": SUMMING, "images": RELEASING}, method="m", nodes=NAMES, min_nodes=4)
    assert set(found) == {"update"}


@pytest.mark.parametrize(
    ("nodes", "min_nodes", "words"),
    [([], 4, "open"), (NAMES[:2], 2, "cohort of 2 nodes"), (NAMES, 3, "min_nodes 3 is below 4")],
)
def test_a_plan_that_cannot_be_masked_is_told_why(nodes, min_nodes, words):
    with pytest.raises(ConfigError, match=words):
        check_masked({"update": SUMMING}, method="m", nodes=nodes, min_nodes=min_nodes)


def test_a_tensor_that_cannot_be_masked_is_named():
    open_range = TensorSpec("free", "float32", (3,), -float("inf"), float("inf"), "anything")
    with pytest.raises(ConfigError, match="tensor free"):
        check_masked({"update": Schema((open_range,))}, method="m", nodes=NAMES, min_nodes=4)


def test_rounds_do_not_go_back():
    memory = MemoryOnly()
    for round_ in (0, 1, 1, 5):
        memory.begin("e", "p", round_)
    with pytest.raises(SecAggError, match=r"^REPLAYED: .* round 5, after round 6"):
        memory.begin("e", "p", 4)
    memory.begin("e", "other", 0)
    memory.begin("other", "p", 0)


def test_a_sum_is_released_once():
    memory = MemoryOnly()
    assert memory.released("e", "p", 3) is None
    memory.begin("e", "p", 3)
    memory.release("e", "p", 3, b"t" * 32, b"m" * 32, ("a", "b"))
    assert memory.released("e", "p", 3) == b"t" * 32
    for again in (
        lambda: memory.begin("e", "p", 3),
        lambda: memory.release("e", "p", 3, b"t" * 32, b"m" * 32, ("a", "b")),
    ):
        with pytest.raises(SecAggError, match=r"^ALREADY_RELEASED: "):
            again()
    memory.begin("e", "p", 4)
    memory.release("e", "p", 4, b"u" * 32, b"n" * 32, ("a",))
