"""What a coordinator still learns of a masked sum is said, tensor by tensor and method by method."""

from __future__ import annotations

import pytest

from fedsecure.schema import Schema, TensorSpec
from fedsecure.secagg.cohort.threshold import Threshold
from fedsecure.secagg.values.streams import Stream, derive_streams
from fedsecure.secagg.values.words import NOT_DETECTED, coordinator_learns, own_rows, stream_words


def streams(*names: str, nodes: int = 5) -> tuple[Stream, ...]:
    specs = tuple(TensorSpec(name, "float32", (nodes, 2), -1, 1, name) for name in names)
    return derive_streams(Schema(summed=specs), prefix="fedspm.update", nodes=nodes)


def test_every_method_names_the_sum_its_threshold_and_what_is_not_detected() -> None:
    said = coordinator_learns("fedavg", streams("w"), Threshold(5))
    assert "at least 4 of 5" in said[0]
    assert any("differ by one" in line for line in said)
    assert any("2 nodes collude" in line and "with 4 everything" in line for line in said)
    assert said[-2:] == NOT_DETECTED


def test_a_plan_may_ask_for_more_nodes_than_the_threshold() -> None:
    threshold = Threshold(5, 5)
    assert (threshold.required, threshold.least, threshold.dropouts, threshold.colluders) == (4, 5, 0, 2)
    assert "at least 5 of 5" in coordinator_learns("fedavg", streams("w"), threshold)[0]
    assert (Threshold(5, 2).least, Threshold(5, 2).dropouts) == (4, 1)


@pytest.mark.parametrize("name", ["mass", "node_records", "responsibility"])
def test_a_row_for_each_node_is_not_called_hidden(name: str) -> None:
    made = streams(name, "w")
    assert own_rows(made) == (name,)
    said = [line for line in coordinator_learns("fedspm", made, Threshold(5)) if "hides nothing" in line]
    assert said == [f"each node's own {name}: every node fills a row of its own, so the sum hides nothing of it"]


def test_the_routing_head_is_barely_hidden() -> None:
    with_head = coordinator_learns("fedspm", streams("shared.bias", "shared.xi"), Threshold(5))
    assert any("routing head" in line and "barely" in line for line in with_head)
    assert not any("routing head" in line for line in coordinator_learns("fedavg", streams("w"), Threshold(5)))


def test_condensed_images_and_lone_holders_are_named_for_fedaf() -> None:
    said = coordinator_learns("fedaf", streams("mean_logits"), Threshold(3))
    assert any("condensed image" in line and "no mask covers them" in line for line in said)
    assert any("a single node holds" in line for line in said)
    assert any("1 node colludes" in line for line in said)


def test_nothing_masked_nothing_said() -> None:
    assert coordinator_learns("feddm", (), Threshold(5)) == ()


def test_a_stream_in_words_names_ring_fraction_bound_and_counts() -> None:
    records = TensorSpec("records", "int64", (1,), 0, 1000, "records", "records")
    w = TensorSpec("w", "float32", (3,), -4000, 4000, "w times records")
    whole, floats = derive_streams(Schema(summed=(records, w)), prefix="fedavg.update", nodes=10)
    assert stream_words(whole).startswith("fedavg.update.records: records (2 elements of 64 bits")
    assert "f = 0, B = 1000)" in stream_words(whole)
    assert "B = 4, values times up to 1000 records)" in stream_words(floats)
