"""A node daemon that answers queries over real mutual TLS, while it trains, across restarts, and not beyond what the
policy says."""

from __future__ import annotations

import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fedsecure.crypto import authority
from fedsecure.crypto.certificates import last_ms
from fedsecure.errors import DataError, NodeUnreachable, PolicyError, ReleaseLogError, RemoteProtocolError
from fedsecure.wire.v1 import coordinator_pb2
from fedsecure_node.store.store import Store

sys.path.insert(0, str(Path(__file__).parents[3]))
from forked_nodes import ForkedNode


@pytest.fixture
def renewed(study, identities):
    """Puts another certificate for the same key into the node's folder; returns its end (milliseconds)."""

    def renew(days):
        now = datetime.now(UTC)
        folder = study.site.folder
        pem = authority.sign_request(
            identities / "ca", (identities / "node" / "tls.csr").read_bytes(), role="node", name="hospital-a", days=1,
            passphrase=None, now=now - timedelta(days=1 - days), renew=True,
        )  # fmt: skip
        (folder / "tls.new").write_bytes(pem)
        (folder / "tls.new").replace(folder / "tls.crt")
        return last_ms(pem)

    return renew


@pytest.fixture
def node(study):
    """A node that took part in the run and serves it."""
    study.run()
    running = study.site.start()
    study.serves(running)
    return running


def kinds(study):
    return [r.kind for r in study.site.records()]


def test_from_the_end_of_a_run_to_an_answer(study, node):
    x = study.x()
    got = study.ask(node, x)
    due = study.expected(x)
    np.testing.assert_array_equal(got.probabilities, due.probabilities)
    np.testing.assert_array_equal(got.components, due.components)
    assert 0 < study.key().not_after_ms - time.time() * 1000 <= 24 * 3_600_000
    assert kinds(study) == ["release", "sending", "acknowledged", "prediction"]
    body = study.site.records()[-1].body
    assert (body["analyst"], body["records"], body["plan"]["name"]) == ("dr-weber", 3, "tiny-fedspm")
    assert body["destination"]["address"] == study.site.address
    assert "answered" in node.text
    node.end()
    assert node.error is None


def test_faults_have_their_names_and_the_node_goes_on(study, node):
    with pytest.raises(PolicyError, match="hospital-a: prediction.analysts: .* dr-moss"):
        study.ask(node, study.x(), analyst="dr-moss")
    with pytest.raises(DataError, match="tensor x: shape"):
        study.ask(node, np.zeros((2, 1, 8, 9), np.float32))
    with pytest.raises(DataError, match="tensor x: 64 of 64 values are not finite"):
        study.ask(node, np.full((1, 1, 8, 8), np.nan, np.float32))
    with pytest.raises(RemoteProtocolError, match="does not have"):
        study.ask(node, study.x(), to="hospital-b")
    with pytest.raises(PolicyError, match="prediction.coordinator_routed"):
        study.ask(node, study.x(1), plain=True)
    study.policy(plain="true", per_hour=4)
    study.ask(node, study.x(1), plain=True)
    with pytest.raises(PolicyError, match="prediction.max_records_per_hour: 4 records after 1"):
        study.ask(node, study.x(4))
    study.ask(node, study.x(3))
    assert kinds(study)[3:].count("prediction") == 2
    refused = [r.body for r in study.site.records() if r.kind == "prediction-refused"]
    assert [b["verified"] for b in refused].count(False) == 1  # what was sealed to hospital-b
    assert len(refused) == 5  # dr-weber's fourth within the minute is only counted …
    node.end()
    assert node.error is None
    last = study.site.records()[-1].body
    assert (last["analyst"], last["query"], last["unlogged"]) == ("dr-weber", "", 1)  # … and in the log at the stop


def test_counts_of_a_process_that_was_killed_are_recorded_at_the_next_start(study, node):
    study.ask(node, study.x())
    node.end()
    with Store(study.site.folder / "store", create=False) as store:
        store.refusals.add("dr-moss", 1)
        store.refusals.add("dr-moss", 2)
    node = study.site.start()
    node.until(lambda: kinds(study)[-1] == "prediction-refused")
    assert (study.site.records()[-1].body["analyst"], study.site.records()[-1].body["unlogged"]) == ("dr-moss", 2)


def test_a_new_certificate_is_announced_and_the_statement_ends_with_it(study, node, renewed):
    before = len(study.relay.served)
    not_after = renewed(days=0.5)
    node.until(lambda: len(study.relay.served) > before, 30)
    assert study.relay.served[-1].key.certificate != study.relay.served[before - 1].key.certificate
    assert study.key(-1).public == study.key(before - 1).public
    assert study.key(-1).not_after_ms == not_after
    time.sleep(1.5)
    assert len(study.relay.served) == before + 1  # once, although less than half a day is left
    study.ask(node, study.x())


def test_a_replayed_query_is_refused(study, node):
    x = study.x()
    study.relay.twice = True
    number, asked, reply = study.put(x)
    node.until(lambda: len(study.relay.all_answers) == 2)
    first, second = study.relay.all_answers
    assert first.query_id == second.query_id == number
    study.opened(first, asked, reply, x)
    with pytest.raises(RemoteProtocolError, match="came a second time"):
        study.opened(second, asked, reply, x)


def test_a_restart_has_another_key_and_the_same_limits(study, node):
    study.policy(per_hour=5)
    study.ask(node, study.x(3))
    old = study.key().public
    node.end()
    study.relay.served.clear()
    node = study.site.start()
    study.serves(node)
    assert study.key().public != old
    with pytest.raises(RemoteProtocolError, match="does not have"):
        study.ask(node, study.x(), public=old)
    with pytest.raises(PolicyError, match="max_records_per_hour: 3 records after 3"):
        study.ask(node, study.x(3))
    study.ask(node, study.x(2))


def test_a_policy_that_lets_nobody_ask_is_announced_and_so_is_its_return(study, node):
    study.ask(node, study.x())
    study.policy(analysts=False)  # whether a query that came now were refused or left lying is a matter of luck
    node.until(lambda: not study.relay.served[-1].plan_digests, 30)
    polls = study.relay.polls
    time.sleep(1.5)
    assert study.relay.polls == polls  # it does not ask for queries that it would not answer
    study.policy()
    study.serves(node)
    study.ask(node, study.x())


def test_queries_are_answered_while_it_trains_and_a_stop_ends_both_in_seconds(study, node, plan_of):
    study.ask(node, study.x())
    long = plan_of("fedavg", settings={"local_steps": 1_000_000}, name="long")
    study.script.ended = None
    study.script.offer(long)
    study.script.ask(long)
    node.until(lambda: "computing" in node.text.split("tiny-fedspm")[-1])
    for _ in range(3):
        study.ask(node, study.x())
    assert "long, round 1" in node.text
    begin = time.monotonic()
    node.end(30)
    assert time.monotonic() - begin < 20
    assert node.error is None


def test_a_broken_line_is_taken_up_again_and_announced_anew(study, node):
    before = len(study.relay.served)
    study.relay.cut_polls = 2
    node.until(lambda: len(study.relay.served) >= before + 2 or not study.relay.cut_polls)
    study.serves(node)
    study.ask(node, study.x())
    assert len(study.relay.served) > before


def test_the_key_is_announced_anew_before_it_runs_out(study, node, monkeypatch):
    from fedsecure_node.serving import desk

    before = len(study.relay.served)
    monkeypatch.setattr(desk, "RENEW_MS", desk.KEY_LIFE_MS + 1)
    node.until(lambda: len(study.relay.served) >= before + 2, 30)
    assert study.key(-1).public == study.key(before - 1).public
    assert study.key(-1).not_after_ms > study.key(before - 1).not_after_ms


def test_nothing_is_announced_while_nobody_may_ask(study):
    study.policy(analysts=False)
    study.run()
    node = study.site.start()
    node.until(lambda: "completed" in node.text)
    time.sleep(1.5)
    assert (study.relay.served, study.relay.polls) == ([], 0)
    study.policy()
    study.serves(node)
    study.ask(node, study.x())


def test_exit_when_done_leaves_what_it_takes_to_serve_later(study):
    study.run()
    node = study.site.start(exit_when_done=True)
    node.join()
    assert node.error is None, node.text
    assert "kept to answer queries with" in node.text
    study.relay.served.clear()
    node = study.site.start()
    study.serves(node)
    np.testing.assert_array_equal(study.ask(node, study.x()).probabilities, study.expected(study.x()).probabilities)


def test_a_stop_before_the_parameters_are_kept_fetches_them_at_the_next_start(study, monkeypatch):
    from fedsecure_node.serving import keeping

    monkeypatch.setattr(keeping, "TRIES", 10**6)
    study.run()
    data = study.script.broadcasts.pop(study.script.ended.serving_digest)  # the coordinator fails to find it
    node = study.site.start()
    node.until(lambda: study.script.complete and study.script.hellos > 1)
    node.end()
    assert "completed" not in node.text
    study.script.broadcasts[study.script.ended.serving_digest] = data
    node = study.site.start()
    study.serves(node)
    study.ask(node, study.x())


def test_parameters_that_cannot_be_fetched_are_given_up_in_the_end(study, monkeypatch):
    from fedsecure_node.serving import keeping

    monkeypatch.setattr(keeping, "TRIES", 2)
    study.run()
    del study.script.broadcasts[study.script.ended.serving_digest]
    node = study.site.start(exit_when_done=True)
    node.join()
    assert node.error is None
    assert "completed; answers no queries: parameters to answer queries with: coordinator failed" in node.text
    assert node.text.count("connected to") == 2


def test_parameters_that_are_not_those_announced_end_the_run_without_serving(study, capsys):
    data = study.method.serving(study.state).to_bytes()
    study.run(serving=data[:-1] + bytes([data[-1] ^ 1]))
    node = study.site.start(exit_when_done=True)
    node.join()
    assert node.error is None
    assert "answers no queries: parameters to answer queries with: the bytes received are not those" in node.text
    assert not study.relay.served
    from fedsecure.cli import run

    assert run(["node", "plans", "--dir", str(study.site.folder)]) == 0
    assert "run: completed (answers no queries: " in capsys.readouterr().out


def test_a_run_of_a_method_that_routes_nothing_is_not_served(study, plan_of):
    plan = plan_of()
    study.script.offer(plan)
    study.script.ask(plan)
    study.script.ended = coordinator_pb2.Ended(
        plan_digest=plan.digest(), state=coordinator_pb2.RUN_STATE_COMPLETED, serving_digest="0" * 64, serving_bytes=9
    )
    node = study.site.start(exit_when_done=True)
    node.join()
    assert node.error is None
    assert "the plan's method routes none" in node.text


def test_a_log_that_was_changed_ends_the_daemon_with_its_name(study, node):
    study.ask(node, study.x())
    path = study.site.folder / "store" / "releases.jsonl"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"tiny-fedspm", b"tiny-fedspn", 1))
    study.put(study.x())
    node.join(60)
    assert isinstance(node.error, ReleaseLogError)
    path.write_bytes(good)


def test_a_run_whose_model_is_gone_is_not_announced(study, node):
    study.ask(node, study.x())

    def lose() -> None:
        with Store(study.site.folder / "store", create=False) as store:
            store.database.write("DELETE FROM serving")

    with pytest.raises(NodeUnreachable, match="has no model of run"):
        study.ask(node, study.x(), meanwhile=lose)
    node.until(lambda: not study.relay.served[-1].plan_digests, 30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_waits_for_a_query_ends_at_once_and_serves_again(study, number):
    study.run()
    process = ForkedNode(study.site.folder, study.site.folder / "out.txt")
    try:
        end = time.monotonic() + 120
        while not (study.relay.served and study.relay.polls):
            assert time.monotonic() < end
            time.sleep(0.05)
        begin = time.monotonic()
        process.send_signal(number)
        assert process.wait(60) == (0 if number == signal.SIGTERM else -9)
        assert time.monotonic() - begin < 15
    finally:
        process.kill()
        process.wait(30)
    study.relay.served.clear()
    node = study.site.start()
    study.serves(node)
    study.ask(node, study.x())
