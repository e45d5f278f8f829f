"""What a completed run leaves for queries: made at its end, kept for good, given to its nodes and to analysts."""

from __future__ import annotations

import hashlib
import sqlite3

import numpy as np
import pytest

from fedsecure.errors import DataError, RemoteProtocolError, WireError
from fedsecure.method import RoutedMethod
from fedsecure.schema import Schema, TensorSpec
from fedsecure.tensors import Tensors
from fedsecure_coordinator.prediction.board import Board
from fedsecure_coordinator.prediction.models import Models
from fedsecure_coordinator.store.journal import Journal, Published, RunRow, Served

TABLES_OF_FORMAT_2 = ("published", "served")
TABLES_OF_FORMAT_3 = ("masks", "sums")


def never_gone():
    return False


def routed(method, fault=None):
    """The toy method, with a router: node number i scores i times the record's first value."""

    class RoutedSum(method):
        nodes = ("a", "b", "c")
        built = 0

        def routing_schema(self):
            return Schema((), (TensorSpec("w", "float64", (4,), -1e9, 1e9, "weights"),))

        def routing(self, server):
            if fault:
                raise fault
            return Tensors({"w": server["total"]})

        def serving_schema(self):
            return Schema((), (TensorSpec("total", "float64", (4,), -1e9, 1e9, "the sum"),))

        def serving(self, server):
            return server

        def route(self, routing, x, *, device="cpu"):
            if not np.isfinite(x).all():
                raise DataError("tensor x: not finite")
            return x[:, :1].astype(np.float64) * np.arange(3.0)

        def predict(self, node, serving, local, x, *, device="cpu"):
            raise NotImplementedError

    return RoutedSum()


def complete(office, plan):
    digest = office.gather(plan)
    for round_ in range(2):
        for node in "abc":
            office.send(digest, node, round_=round_)
        office.work()
    return digest


def sha(data):
    return hashlib.sha256(data).hexdigest()


def test_the_end_of_a_routed_run_publishes_what_answers_queries(open_office, toy):
    method = routed(toy.method)
    assert isinstance(method, RoutedMethod)
    office = open_office(method)
    digest = complete(office, toy.plan())
    row = office.registry.ended()[digest]
    server = Tensors.from_bytes(office.blobs.get(row.server))
    serving, routing = server.to_bytes(), Tensors({"w": server["total"]}).to_bytes()
    due = Published(digest, sha(serving), len(serving), sha(routing), len(routing))
    assert office.journal.published() == {digest: due}
    work = office.desk.next_work("b", [digest], 0, never_gone)
    assert (work.ended.phase, work.published) == ("COMPLETED", due)
    office.registry.prune()
    for where in (office, open_office(method)):  # and the same after a restart
        where.preparer.take_up()
        where.registry.prune()
        assert where.desk.next_work("a", [digest], 0, never_gone).published == due
        assert b"".join(where.desk.broadcast("a", due.serving, 10, 7)) == serving[10:]
        assert b"".join(Models(where.registry).routing(digest, 3, 7)) == routing[3:]
    assert office.journal.traffic(digest)[1]["a"][1] >= 2 * (len(serving) - 10)


def test_what_nodes_keep_is_given_to_nodes_of_the_run_alone(open_office, toy):
    office = open_office(routed(toy.method))
    digest = office.submit(toy.plan())
    office.desk.join("a", digest)
    office.desk.join("b", digest)
    office.desk.refuse("c", digest, "no")
    for round_ in range(2):
        for node in "ab":
            office.send(digest, node, round_=round_)
        office.work()
    serving = office.journal.published()[digest].serving
    assert next(office.desk.broadcast("a", serving, 0, 7))
    for stranger in ("c", "z"):
        with pytest.raises(RemoteProtocolError, match=f"is not on offer to node {stranger}"):
            next(office.desk.broadcast(stranger, serving, 0, 7))
    with pytest.raises(RemoteProtocolError, match="is not on offer to node a"):  # it is the analysts'
        next(office.desk.broadcast("a", office.journal.published()[digest].routing, 0, 7))
    size = office.journal.published()[digest].serving_bytes
    with pytest.raises(RemoteProtocolError, match=f"has {size} bytes, not {size + 1}"):
        next(office.desk.broadcast("a", serving, size + 1, 7))
    assert Models(office.registry).taken_part("a", [digest, "0" * 64, digest]) == [digest]
    assert Models(office.registry).taken_part("c", [digest]) == []


def test_the_daemon_waits_until_nodes_have_fetched_what_they_keep(open_office, toy):
    office = open_office(routed(toy.method))
    digest = complete(office, toy.plan())
    published = office.journal.published()[digest]
    assert office.desk.next_work("a", [digest], 0, never_gone).published == published
    assert office.desk.untold() == 3
    next(office.desk.broadcast("a", published.serving, 0, 7))
    assert office.desk.untold() == 3  # broken off
    assert b"".join(office.desk.broadcast("a", published.serving, 7, 7))
    assert office.desk.untold() == 2


def test_a_method_without_routing_publishes_nothing(open_office, toy):
    office = open_office()
    digest = complete(office, toy.plan())
    assert office.journal.published() == {}
    assert office.desk.next_work("a", [digest], 0, never_gone).published is None
    with pytest.raises(RemoteProtocolError, match="answers no queries here"):
        Models(office.registry).get(digest)


def test_a_run_whose_router_cannot_be_made_ends_with_that_reason(open_office, toy):
    office = open_office(routed(toy.method, DataError("the router has no weights")))
    digest = complete(office, toy.plan())
    row = office.registry.ended()[digest]
    assert (row.phase, office.journal.published()) == ("ABORTED", {})
    assert row.reason == "update: what queries are answered with: the router has no weights"


def test_only_completed_runs_answer_queries(open_office, toy):
    office = open_office(routed(toy.method))
    models = Models(office.registry)
    digest = office.gather(toy.plan())
    assert models.all() == []
    for unknown in (digest, "0" * 64, "", "\x1b[31m"):
        with pytest.raises(RemoteProtocolError, match="answers no queries here"):
            models.get(unknown)
    again = open_office(routed(toy.method))
    with pytest.raises(WireError, match="is starting"):
        Models(again.registry).get(digest)


def test_plain_queries_are_routed_by_a_method_that_is_built_once(open_office, toy):
    office = open_office()
    built = []

    def build(plan):
        built.append(plan.name)
        return routed(toy.method)

    office.registry.build_method = build
    older = complete(office, toy.plan(name="older"))
    office.clock.now += 1000
    newer = complete(office, toy.plan(name="newer"))
    built.clear()
    models = Models(office.registry)
    assert [m.row.digest for m in models.all()] == [newer, older]
    assert models.get(older).nodes == ("a", "b", "c")
    for _ in range(2):
        for digest in (older, newer):
            nodes, scores = models.scores(digest, np.full((1, 4), 2, np.float32))
            assert (nodes, scores.tolist()) == (("a", "b", "c"), [[0.0, 2.0, 4.0]])
    assert built == ["older", "newer"]
    with pytest.raises(DataError, match="tensor x: not finite"):
        models.scores(newer, np.full((1, 4), np.nan, np.float32))


def test_a_score_that_is_no_number_routes_nowhere(open_office, toy):
    office = open_office(routed(toy.method))
    digest = complete(office, toy.plan())
    office.registry.build_method(None).route = lambda routing, x: np.full((1, 3), np.inf)
    with pytest.raises(DataError, match="no finite score"):
        Models(office.registry).scores(digest, np.ones((1, 4), np.float32))


def test_an_older_journal_is_upgraded_when_it_is_written_to_and_read_as_it_is(tmp_path):
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    journal.add_run(RunRow("d" * 64, "old", b"{}", 1))
    journal.close()
    with sqlite3.connect(path) as old:  # as the version before wrote it
        for table in (*TABLES_OF_FORMAT_2, *TABLES_OF_FORMAT_3):
            old.execute(f"DROP TABLE {table}")
        old.execute("PRAGMA user_version=1")
    old.close()
    before = path.read_bytes()
    reader = Journal(path, "read")
    assert ([r.name for r in reader.runs()], reader.published(), reader.served()) == (["old"], {}, [])
    reader.close()
    assert path.read_bytes() == before
    journal = Journal(path, "write")
    published = Published("d" * 64, "s" * 64, 1, "r" * 64, 2)
    journal.publish(published)
    assert (journal.format, [r.name for r in journal.runs()]) == (3, ["old"])
    journal.close()
    again = Journal(path, "read")
    assert again.published() == {"d" * 64: published}
    again.close()


def test_the_board_shows_the_running_daemon_and_is_wiped_at_its_ends(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    rows = [Served("r" * 64, "a", True, 3, 1), Served("r" * 64, "b", False, 0, 0)]
    journal.set_served([Served("o" * 64, "z", True, 1, 1)])  # left by a process that was killed

    class Dispatcher:
        served = staticmethod(lambda: rows)

    board = Board(journal, Dispatcher())
    assert journal.served() == []
    board.write()
    assert journal.served() == rows
    board.clear()
    assert journal.served() == []
    journal.close()
    board._due = 0.0
    board.write()  # a closed file: what is only shown stops nobody
