"""Waiting for answers and for queries: bounds in time, hang-ups, the end, and what the log says."""

from __future__ import annotations

import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedsecure.errors import NodeUnreachable, RemoteProtocolError, WireError
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure_coordinator.prediction.dispatcher import Dispatcher
from fedsecure_coordinator.prediction.turnstile import CALLS_EACH, Turnstile

RUN = "r" * 64


def signed(outcome):
    return pb.SignedStatement(label="plain-answer", body=pb.PlainAnswer(outcome=outcome).SerializeToString())


def here():
    return False


@pytest.fixture
def dispatcher():
    made = Dispatcher()
    made.serve("a", [RUN], pb.SignedStatement(body=b"key"))
    return made


@pytest.fixture
def pool(dispatcher):
    """Threads; who still waits in one when the test is over is sent home."""
    with ThreadPoolExecutor(8) as made:
        yield made
        dispatcher.close()


def queries_logged(caplog):
    return [r.fields for r in caplog.records if getattr(r, "fields", {}).get("event") == "query"]


def test_a_question_and_its_answer_meet(dispatcher, pool, caplog):
    caplog.set_level(logging.INFO, "fedsecure.coordinator")
    polled = pool.submit(dispatcher.next, "a", 60, here)
    asked = pool.submit(dispatcher.ask, "anna", "a", RUN, b"secret query", 60, here)
    query, left = polled.result(30)
    assert (query.body, query.analyst, query.run) == (b"secret query", "anna", RUN)
    assert 30 < left <= 60
    assert len(query.id) == 32
    dispatcher.answer("a", query.id, b"secret answer")
    assert asked.result(30) == b"secret answer"
    (fields,) = queries_logged(caplog)
    assert fields == {
        "event": "query",
        "analyst": "anna",
        "node": "a",
        "run": RUN,
        "bytes": 12,
        "form": "sealed",
        "outcome": "relayed",
        "times": 1,
    }
    about = "query of analyst anna to node a, run rrrrrrrrrrrr, sealed, 12 bytes"
    assert re.search(rf"{about}: relayed in \d+\.\d\d s", caplog.text)
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (pb.Refusal(error="RemoteProtocolError"), "refused"),
        (signed(pb.Outcome(refusal=pb.Refusal(error="PolicyError"))), "refused"),
        (signed(pb.Outcome(prediction=pb.PredictionBody(node_id="a"))), "answered"),
        (pb.SignedStatement(label="plain-answer", body=b"\xff"), "relayed"),
    ],
)
def test_the_log_tells_what_can_be_known_of_a_reply(dispatcher, pool, caplog, reply, outcome):
    caplog.set_level(logging.INFO, "fedsecure.coordinator")
    asked = pool.submit(dispatcher.ask, "anna", "a", RUN, pb.SignedStatement(label="query"), 60, here)
    query, _ = dispatcher.next("a", 60, here)
    dispatcher.answer("a", query.id, reply)
    assert asked.result(30) == reply
    assert [f["outcome"] for f in queries_logged(caplog)] == [outcome]


def test_waits_end_in_time(dispatcher, pool, caplog):
    caplog.set_level(logging.INFO, "fedsecure.coordinator")
    start = time.monotonic()
    assert dispatcher.next("a", 0.1, here) is None
    polled = pool.submit(dispatcher.next, "a", 60, here)
    for _ in range(2):
        with pytest.raises(NodeUnreachable, match="node a did not answer in time"):
            dispatcher.ask("anna", "a", RUN, b"query", 0.1, here)
        newer = pool.submit(dispatcher.next, "a", 60, here)  # ends the older one, if that came too late for the query
        polled.result(30)
        polled = newer
    assert time.monotonic() - start < 30  # 120 where the poll would be waited for
    logged = queries_logged(caplog)
    assert [(f["outcome"], f["times"]) for f in logged] == [("unreachable", 1)]  # once a minute
    assert [(s.answered, s.unreachable) for s in dispatcher.served()] == [(0, 2)]


def test_a_node_that_hangs_up_ends_the_wait_for_it_at_once(pool):
    dispatcher, gone = Dispatcher(), threading.Event()
    dispatcher.serve("a", [RUN], pb.SignedStatement())
    blocked = pool.submit(dispatcher.next, "a", 60, gone.is_set)
    query, _ = _asked_and_taken(dispatcher, pool, blocked)
    again = pool.submit(dispatcher.next, "a", 60, gone.is_set)
    _until(lambda: dispatcher.serving(RUN)[0][1])
    gone.set()
    dispatcher.wake()
    assert again.result(30) is None
    start = time.monotonic()
    with pytest.raises(NodeUnreachable, match="node a cannot be reached: it asks for no queries"):
        dispatcher.ask("bert", "a", RUN, b"query", 60, here)
    assert time.monotonic() - start < 30
    dispatcher.answer("a", query.id, b"answer")  # what it took, it may still answer


def test_an_analyst_who_hangs_up_leaves_nothing_behind(dispatcher, pool):
    gone = threading.Event()
    asked = pool.submit(dispatcher.ask, "anna", "a", RUN, b"query", 60, gone.is_set)
    query, _ = pool.submit(dispatcher.next, "a", 60, here).result(30)
    gone.set()
    dispatcher.wake()
    with pytest.raises(WireError, match="analyst anna hung up"):
        asked.result(30)
    with pytest.raises(RemoteProtocolError, match="no answer of node a is due"):
        dispatcher.answer("a", query.id, b"answer")


def test_a_newer_poll_ends_the_older_one(dispatcher, pool):
    older = pool.submit(dispatcher.next, "a", 60, here)
    _until(lambda: dispatcher._relay._nodes["a"].turn == 1)
    newer = pool.submit(dispatcher.next, "a", 60, here)
    assert older.result(30) is None
    _asked_and_taken(dispatcher, pool, newer)


def test_the_end_sends_everybody_home(dispatcher, pool):
    asked = pool.submit(dispatcher.ask, "anna", "a", RUN, b"query", 60, here)
    dispatcher.next("a", 60, here)
    polled = pool.submit(dispatcher.next, "a", 60, here)
    _until(lambda: dispatcher._relay._nodes["a"].polls)
    dispatcher.close()
    for call in (asked, polled, pool.submit(dispatcher.ask, "anna", "a", RUN, b"query", 60, here)):
        with pytest.raises(WireError, match="shutting down"):
            call.result(30)


def test_analysts_have_a_share_of_the_threads_and_no_more():
    turnstile = Turnstile(2)
    inside = [turnstile.entered("anna") for _ in range(CALLS_EACH)]
    for place in inside:
        place.__enter__()
    with pytest.raises(WireError, match=f"analyst anna: {CALLS_EACH} calls go on already"), turnstile.entered("anna"):
        pass
    for name in ("bert", "carl"):
        for _ in range(CALLS_EACH // 2):
            inside.append(turnstile.entered(name))
            inside[-1].__enter__()
    with (
        pytest.raises(WireError, match=f"busy with {2 * CALLS_EACH} calls") as caught,
        turnstile.entered("dora"),
    ):
        pass
    assert "limits.max_analysts" in caught.value.hint
    inside[0].__exit__(None, None, None)
    with turnstile.entered("dora"):
        pass


def _asked_and_taken(dispatcher, pool, polled):
    pool.submit(dispatcher.ask, "anna", "a", RUN, b"query", 60, here)
    return polled.result(30)


def _until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
