"""The relay of queries: every line of its table, its bounds, and who counts as reachable."""

from __future__ import annotations

import itertools

import pytest

from fedsecure.errors import NodeUnreachable, RemoteProtocolError, WireError
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure_coordinator.prediction.relay import LAST_SECONDS, MAX_EACH, MAX_QUEUED, Relay, State
from fedsecure_coordinator.store.journal import Served

RUN, OTHER = "r" * 64, "o" * 64
KEY = pb.SignedStatement(label="node-query-key", body=b"key")
PLAIN = pb.SignedStatement(label="query", body=b"query")
REFUSED = pb.Refusal(error="RemoteProtocolError", message="sealed to another key")
SIGNED = pb.SignedStatement(label="plain-answer", body=b"b", certificate=b"c", signature=b"s")


@pytest.fixture
def relay():
    numbers = itertools.count()
    made = Relay(lambda: f"id-{next(numbers)}")
    made.serve("a", [RUN], KEY, 0.0)
    made.poll("a", 0.0)
    return made


def ask(relay, *, analyst="anna", node="a", run=RUN, body=b"sealed", now=1.0, deadline=10.0):
    return relay.ask(analyst, node, run, body, now, deadline)


def test_a_query_goes_to_its_node_once_and_its_answer_back_once(relay):
    first, second = ask(relay), ask(relay, analyst="bert", body=b"another")
    assert relay.reply(first, 1.0) is None
    assert relay.take("b", 1.0) is None
    taken = relay.take("a", 1.0)
    assert (taken.id, taken.body, taken.analyst, taken.run, taken.state) == (first, b"sealed", "anna", RUN, State.TAKEN)
    assert relay.take("a", 1.0).id == second
    assert relay.take("a", 1.0) is None
    relay.answer("a", first, b"answer", 2.0)
    with pytest.raises(RemoteProtocolError, match="no answer of node a is due"):
        relay.answer("a", first, b"another answer", 2.0)
    assert relay.reply(second, 2.0) is None
    assert relay.reply(first, 2.0) == b"answer"
    with pytest.raises(RemoteProtocolError, match="no answer of node a is due"):
        relay.answer("a", first, b"answer", 2.0)
    assert relay.served(2.0) == [Served(RUN, "a", True, 1, 0)]


def test_nobody_else_can_answer_and_nobody_before_it_was_taken(relay):
    query = ask(relay)
    with pytest.raises(RemoteProtocolError, match="no answer of node a is due"):
        relay.answer("a", query, b"guessed", 1.0)
    relay.take("a", 1.0)
    relay.serve("b", [RUN], KEY, 1.0)
    with pytest.raises(RemoteProtocolError, match="no answer of node b is due"):
        relay.answer("b", query, b"forged", 1.0)
    with pytest.raises(RemoteProtocolError, match="no answer of node a is due"):
        relay.answer("a", "id-77", b"answer", 1.0)
    relay.answer("a", query, b"answer", 1.0)
    assert relay.reply(query, 1.0) == b"answer"


@pytest.mark.parametrize(
    ("body", "reply", "fault"),
    [
        (b"sealed", SIGNED, "it was sealed, and so must its answer be"),
        (PLAIN, b"sealed", "asked in the plain form"),
        (b"sealed", REFUSED, None),
        (PLAIN, REFUSED, None),
        (PLAIN, SIGNED, None),
    ],
)
def test_an_answer_has_the_form_of_its_query(relay, body, reply, fault):
    query = ask(relay, body=body)
    relay.take("a", 1.0)
    if fault:
        with pytest.raises(RemoteProtocolError, match=fault):
            relay.answer("a", query, reply, 1.0)
        assert relay.reply(query, 1.0) is None
    else:
        relay.answer("a", query, reply, 1.0)
        assert relay.reply(query, 1.0) is reply


def test_a_query_ends_at_its_deadline_taken_or_not(relay):
    taken, queued = ask(relay), ask(relay)
    relay.take("a", 1.0)
    assert relay.look_again(taken) == relay.look_again(queued) == 10.0
    assert relay.reply(taken, 9.9) is None
    for query in (taken, queued):
        with pytest.raises(NodeUnreachable, match="node a did not answer in time"):
            relay.reply(query, 10.0)
    assert relay.take("a", 10.0) is None
    with pytest.raises(RemoteProtocolError, match="no answer of node a is due"):
        relay.answer("a", taken, b"late", 10.0)
    assert relay.served(10.0) == [Served(RUN, "a", True, 0, 2)]


def test_a_late_answer_is_none_even_before_anyone_looked(relay):
    query = ask(relay)
    relay.take("a", 1.0)
    with pytest.raises(RemoteProtocolError, match="no answer of node a is due"):
        relay.answer("a", query, b"late", 10.0)


def test_a_query_that_nobody_waits_for_any_more_is_not_given_out(relay):
    ask(relay)
    newer = ask(relay, deadline=20.0)
    assert relay.take("a", 10.0).id == newer


def test_an_answered_query_makes_room(relay):
    for _ in range(2 * MAX_EACH):
        query = ask(relay)
        relay.take("a", 1.0)
        relay.answer("a", query, b"answer", 1.0)
        assert relay.reply(query, 1.0) == b"answer"


def test_a_dropped_query_is_forgotten(relay):
    query = ask(relay)
    relay.take("a", 1.0)
    relay.drop(query)
    with pytest.raises(RemoteProtocolError, match="no answer of node a is due"):
        relay.answer("a", query, b"answer", 1.0)
    queued = ask(relay)
    relay.drop(queued)
    assert relay.take("a", 1.0) is None


def test_only_what_is_served_and_reachable_can_be_asked(relay):
    with pytest.raises(NodeUnreachable, match="node a does not serve run oooooooooooo"):
        ask(relay, run=OTHER)
    with pytest.raises(NodeUnreachable, match="node b does not serve run rrrrrrrrrrrr"):
        ask(relay, node="b")
    relay.poll_over("a", 1, 2.0, broken=False)
    ask(relay, now=2.0 + LAST_SECONDS - 0.1)
    with pytest.raises(NodeUnreachable, match="node a cannot be reached"):
        ask(relay, now=2.0 + LAST_SECONDS)
    relay.serve("a", [], KEY, 20.0)
    relay.poll("a", 20.0)
    with pytest.raises(NodeUnreachable, match="node a does not serve"):
        ask(relay, now=20.0, deadline=30.0)


def test_who_hangs_up_is_gone_at_once_and_what_waited_for_them_too(relay):
    query = ask(relay)
    relay.poll_over("a", 1, 2.0, broken=True)
    assert not relay.reachable("a", 2.0)
    assert relay.look_again(query) < 2.0
    with pytest.raises(NodeUnreachable, match="cannot be reached any more"):
        relay.reply(query, 2.0)
    relay.poll("a", 3.0)
    assert relay.reachable("a", 3.0)


def test_a_newer_poll_ends_the_older_and_its_end_says_nothing(relay):
    assert relay.is_turn("a", 1)
    assert relay.poll("a", 1.0) == 2
    assert not relay.is_turn("a", 1)
    relay.poll_over("a", 1, 1.0, broken=True)
    assert relay.reachable("a", 1e9)


def test_a_node_that_works_on_a_query_is_reachable_until_it_is_due(relay):
    query = ask(relay, deadline=50.0)
    relay.take("a", 1.0)
    relay.poll_over("a", 1, 1.0, broken=False)
    assert relay.reachable("a", 49.9)
    assert not relay.reachable("a", 50.0)
    relay.answer("a", query, b"answer", 40.0)
    assert relay.reachable("a", 40.0 + LAST_SECONDS - 0.1)
    assert not relay.reachable("a", 40.0 + LAST_SECONDS)


def test_a_node_says_what_it_serves_before_it_asks_for_queries(relay):
    with pytest.raises(RemoteProtocolError, match="node b has not said which runs it serves") as caught:
        relay.poll("b", 0.0)
    assert "Serve" in caught.value.hint


def test_queues_are_bounded_by_analyst_and_by_node(relay):
    for _ in range(MAX_EACH):
        ask(relay)
    with pytest.raises(WireError, match=f"analyst anna: {MAX_EACH} queries wait already"):
        ask(relay)
    for number in range(MAX_QUEUED - MAX_EACH):
        ask(relay, analyst=f"analyst-{number}")
    with pytest.raises(WireError, match=f"node a: {MAX_QUEUED} queries wait already"):
        ask(relay, analyst="bert")
    relay.serve("b", [RUN], KEY, 1.0)
    ask(relay, analyst="bert", node="b")  # another node is another queue


def test_what_analysts_and_the_operator_see(relay):
    relay.serve("b", [RUN, OTHER], KEY, 1.0)
    newer = pb.SignedStatement(label="node-query-key", body=b"newer")
    relay.serve("b", [OTHER], newer, 1.0)
    assert relay.serving(RUN, 1.0) == [("a", True, KEY), ("b", False, newer)]
    assert relay.serving(OTHER, 1.0) == [("b", True, newer)]
    assert relay.serving(OTHER, 1.0 + LAST_SECONDS) == [("b", False, newer)]
    with pytest.raises(NodeUnreachable):
        ask(relay, node="c")
    assert relay.served(1.0) == [
        Served(OTHER, "b", True, 0, 0),
        Served(RUN, "a", True, 0, 0),
        Served(RUN, "b", False, 0, 0),
        Served(RUN, "c", False, 0, 1),
    ]


def test_what_is_asked_and_answered_is_in_no_text(relay):
    query = ask(relay, body=b"secret")
    taken = relay.take("a", 1.0)
    relay.answer("a", query, b"secret", 1.0)
    assert "secret" not in repr(taken)
