"""``fedsecure predict`` about many records: whatever goes wrong midway, every answer that came is printed."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from fedsecure.errors import DataError, PolicyError, WireError
from fedsecure.prediction.answers import encode_refusal

FOR_A, FOR_B = [3.0, 1.0], [1.0, 3.0]


def over_the_hour(outcome):
    return encode_refusal(PolicyError("prediction.max_records_per_hour: 1 record after 0", hint="wait"))


@pytest.mark.parametrize("route_at", ["analyst", "coordinator"])
def test_what_was_answered_is_printed_whatever_the_rest_came_to(predict, world, queries, monkeypatch, route_at):
    monkeypatch.setenv("COLUMNS", "200")
    world.nodes["b"].twist = over_the_hour
    path = queries([FOR_A, FOR_B, FOR_A, FOR_B])
    code, out, err = predict(path, "--json", "--route-at", route_at)
    said = json.loads(out)
    assert code == 4
    assert [(a["record"], a["node"]) for a in said["answers"]] == [(f"{path}:0", "a"), (f"{path}:2", "a")]
    message = "node b: prediction.max_records_per_hour: 1 record after 0"
    assert said["unanswered"] == [
        {"record": f"{path}:{row}", "error": "PolicyError", "message": message, "hint": "wait"} for row in (1, 3)
    ]
    assert json.loads(err) == {"error": "PolicyError", "message": message, "hint": "wait", "exit_code": 4}
    code, out, err = predict(path, "--route-at", route_at)
    assert code == 4
    assert f"{path}:2" in out
    assert f"{path}:1" not in out
    assert f"not answered, 2 of 4 records ({path}:1, {path}:3): {message}\nerror: {message}\nhint: wait\n" == err


def test_a_fault_of_a_record_names_it_even_where_it_is_the_only_one(predict, world, queries):
    world.nodes["a"].twist = lambda outcome: encode_refusal(DataError("tensor x: record 0: no"))
    path = queries([FOR_A])
    for route_at in ("analyst", "coordinator"):
        code, out, err = predict(path, "--route-at", route_at)
        assert (code, out) == (15, "")
        assert err.startswith(
            f"not answered, 1 of 1 record ({path}:0): node a: tensor x: record 0: no\nerror: node a: "
        )


def test_every_reason_is_told(predict, world, queries):
    world.nodes["a"].twist = over_the_hour
    world.nodes["b"].up = False
    path = queries([FOR_B, FOR_A])
    code, out, err = predict(path)
    assert (code, out) == (20, "")
    first, second, last, hint = err.splitlines()
    assert first.startswith(f"not answered, 1 of 2 records ({path}:0): node b cannot be reached")
    assert second.startswith(f"not answered, 1 of 2 records ({path}:1): node a: prediction.max_records_per_hour")
    assert last.startswith("error: node b cannot be reached")
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("route_at", ["analyst", "coordinator"])
def test_a_coordinator_that_goes_away_midway(predict, world, queries, route_at):
    def gone():
        raise WireError("the coordinator is shutting down", hint="try again later")

    world.nodes["b"].read = lambda *_: gone()
    path = queries([FOR_A, FOR_B, FOR_B])
    code, out, err = predict(path, "--json", "--route-at", route_at)
    said = json.loads(out)
    if route_at == "coordinator":  # else the fake coordinator says that the node did not take it
        assert (code, json.loads(err)["error"]) == (7, "WireError")
    assert [a["record"] for a in said["answers"]] == [f"{path}:0"]
    assert [u["record"] for u in said["unanswered"]] == [f"{path}:1", f"{path}:2"]


@pytest.mark.parametrize("route_at", ["analyst", "coordinator"])
@pytest.mark.parametrize("form", [["--json"], []])
def test_an_interruption_keeps_what_was_answered(predict, world, queries, monkeypatch, route_at, form):
    def interrupt(outcome):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        return outcome

    monkeypatch.setenv("COLUMNS", "200")
    world.nodes["b"].twist = interrupt
    path = queries([FOR_A, FOR_B])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, out, err = predict(path, *form, "--route-at", route_at)
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130
    if not form:
        assert "0.600" in out
        assert err == f"not answered, 1 of 2 records ({path}:1): interrupted\nerror: interrupted\n"
        return
    said = json.loads(out)
    assert json.loads(err)["error"] == "KeyboardInterrupt"
    assert [a["record"] for a in said["answers"]] == [f"{path}:0"]
    assert [(u["record"], u["error"]) for u in said["unanswered"]] == [(f"{path}:1", "KeyboardInterrupt")]


def test_a_node_that_takes_few_records_at_once_is_asked_in_parts(predict, world, queries):
    node = world.nodes["a"]
    decide = node.decide

    def few(query):
        if len(query.x["x"]) > 5:
            return encode_refusal(
                PolicyError("prediction.max_records_per_query: too many", hint="ask in smaller parts")
            )
        return decide(query)

    node.decide = few
    code, out, _ = predict(queries([FOR_A] * 20), "--json")
    assert code == 0
    assert len(json.loads(out)["answers"]) == 20
    assert max(node.served) == 5
