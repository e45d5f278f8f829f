"""In the sealed form no plaintext of a query is ever in the coordinator: not in its process, its store or its log.

The process is stopped and all its memory read, while a query waits in it and after it was answered. So that the search
can fail, the same is asked in the plain form, and found.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from fedsecure.crypto.sealing import SealingKey, seal
from fedsecure.crypto.statements import Signer
from fedsecure.data.dataset import Dataset
from fedsecure.method import ClientContext, Prediction
from fedsecure.methods import build_method
from fedsecure.plan import load_plan
from fedsecure.prediction.answers import decode_outcome, encode_prediction
from fedsecure.prediction.keys import node_key_statement, read_node_key
from fedsecure.prediction.queries import answer_info, make_query, query_info, read_query
from fedsecure.prediction.signed import sign_answer
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution, upload_key
from fedsecure.wire.v1 import prediction_pb2 as pb

FEDERATION = "test.example"
PLAN = """
format = 1
name = "routed"
rounds = 1
[task]
kind = "image"
classes = ["zero", "one"]
shape = [1, 128, 128]
[model]
name = "mlp"
hidden = [4]
[method]
name = "fedspm"
components = 2
router = { name = "mlp", hidden = [4] }
predict = { steps = 1, batch = 4 }
route = { steps = 1, batch = 4 }
[cohort]
min_nodes = 2
nodes = ["a", "b"]
[deadlines]
join = 60.0
exchange = 60.0
"""
#: A process that imports torch has at least this much memory (bytes): less means that not all was read.
LEAST = 50 << 20
#: Memory is read in pieces of this size, which overlap by more than what is searched for (bytes).
PIECE, OVERLAP = 32 << 20, 256


class Marker:
    """A record of 64 KiB in [0, 1). Each 16 bytes begin with the same random 8, the tag, and go on with their own: so
    every 32 bytes of it, wherever they begin, hold a tag with its own 8 bytes, and whoever finds none of these has seen
    no 32 bytes of the record."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        cells = generator.random((4096, 4), dtype=np.float32)
        cells[:, :2] = generator.random(2, dtype=np.float32)
        self.x = cells.reshape(1, 1, 128, 128)  # (n, *shape)
        data = self.x.tobytes()
        self.tag, self.cells = data[:8], {data[at : at + 16] for at in range(0, len(data), 16)}
        assert (len(data), len(self.cells)) == (64 << 10, 4096)

    def count(self, data: bytes) -> int:
        """How many of its cells are in ``data``."""
        found, at = 0, data.find(self.tag)
        while at >= 0:
            found += data[at : at + 16] in self.cells
            at = data.find(self.tag, at + 1)
        return found


def regions(pid: int) -> Iterator[tuple[int, int]]:
    """What is readable and was ever written: all but the pages of libraries as they lie on the disk."""
    place, rights, written = "", "", 0
    for line in [*Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines(), "0-0 ---p"]:
        first, *more = line.split()
        if first in ("Anonymous:", "Swap:") or (first == "Rss:" and "s" in rights):
            written += int(more[0])
        elif "-" in first and not first.endswith(":"):
            if "r" in rights and written:
                start, end = (int(edge, 16) for edge in place.split("-"))
                yield start, end
            place, rights, written = first, more[0], 0


def memory(pid: int) -> Iterator[bytes]:
    """All memory of a process, in overlapping pieces."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
        for start, end in regions(pid):
            for at in range(start, end, PIECE):
                try:
                    file.seek(at)
                    yield file.read(min(PIECE + OVERLAP, end - at))
                except OSError:  # mapped beyond the end of a file, or the kernel's own
                    continue


@contextmanager
def stopped(process) -> Iterator[int]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGCONT)


def search(process, marker: Marker, other: bytes) -> tuple[int, bool]:
    """How many cells of the marker the process holds, and whether it holds ``other``."""
    cells, there, size = 0, False, 0
    with stopped(process) as pid:
        for piece in memory(pid):
            cells, there, size = cells + marker.count(piece), there or other in piece, size + len(piece)
    assert size > LEAST
    return cells, there


@pytest.fixture
def trained(run_cli, begin, dial, coordinator_folder, tmp_path):
    """The coordinator as a process, with a completed run of FedSPM: (process, plan's digest)."""
    settings = coordinator_folder / "coordinator.toml"  # a query waits while all memory is read
    settings.write_text(settings.read_text().replace("max_wait_ms = 20000", "max_wait_ms = 120000"))
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    plan, _ = load_plan(path)
    method = build_method(plan)
    run_cli("submit", path, "--dir", coordinator_folder)
    process = begin()
    process.find("opened")
    callers = [dial(name, process.port) for name in "ab"]
    for caller in callers:
        caller.join(plan.digest())
    for caller in callers:
        exchange = caller.work(plan.digest()).exchange
        x = np.random.default_rng(ord(caller.name)).random((4, 1, 128, 128), dtype=np.float32)
        data = Dataset(x, np.array([0, 1, 0, 1]), ("zero", "one"))
        broadcast = Tensors.from_bytes(caller.download(exchange.broadcast_digest))
        ctx = ClientContext(node=caller.name, round=0, seed=1)
        given = encode_contribution(method.client_update(exchange.exchange, broadcast, Tensors(), data, ctx)[1])
        key = upload_key(
            given, node_id=caller.name, plan_digest=plan.digest(), round_=0, attempt=0, exchange=exchange.exchange
        )
        assert caller.upload(key, given.data).complete
    process.find("completed")
    return process, plan.digest()


class Node:
    """Node a, by the library alone: opens, reads, answers."""

    def __init__(self, caller, folder: Path) -> None:
        self.caller, self.folder, self.key = caller, folder, SealingKey.generate()
        self.signer = Signer((folder / "tls.key").read_bytes(), (folder / "tls.crt").read_bytes())

    def serve(self, digest: str) -> None:
        until = time.time_ns() // 1_000_000 + 3_600_000
        statement = node_key_statement(self.signer, FEDERATION, self.caller.name, self.key.public, until)
        self.caller.serve(digest, key=statement)

    def read(self, relayed, digest: str, node: str, statement: pb.SignedStatement):
        return read_query(
            statement,
            ca_pem=(self.folder / "ca.crt").read_bytes(),
            crl_pem=None,
            federation=FEDERATION,
            run=digest,
            node=node,
            analyst=relayed.analyst_id,
            now=datetime.now(UTC),
        )


def outcome_of(name: str, digest: str) -> pb.Outcome:
    return encode_prediction(name, digest, Prediction(np.array([[0.25, 0.75]]), np.array([[0.5, 0.5]])))


def ask_sealed(process, digest, anna, node, signer, marker):
    """Ask, look while the query waits, answer, look again: what was found at both times."""
    ((served,),) = (list(m.nodes) for m in anna.models())
    ca = (node.folder / "ca.crt").read_bytes()
    key = read_node_key(served.key, ca_pem=ca, crl_pem=None, federation=FEDERATION, node="a", now=datetime.now(UTC))
    reply_key, now = SealingKey.generate(), time.time_ns() // 1_000_000
    asked = make_query(
        signer, run=digest, node="a", analyst="anna", x=marker.x, now_ms=now, reply_public=reply_key.public
    )
    sealed = seal(key.public, asked.statement.SerializeToString(), query_info(digest, "a"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(anna.ask, digest, "a", sealed, wait_ms=120_000)
        relayed = node.caller.next_query()
        statement = pb.SignedStatement.FromString(node.key.open(relayed.sealed, query_info(digest, "a")))
        query = node.read(relayed, digest, "a", statement)
        assert query.x["x"].tobytes() == marker.x.tobytes()  # it travelled, and travelled through the coordinator
        during = search(process, marker, sealed[1000:1100])
        answer = outcome_of("a", query.digest).SerializeToString()
        node.caller.answer(relayed.query_id, sealed=seal(query.reply_key, answer, answer_info(query.digest)))
        opened = reply_key.open(waiting.result(120), answer_info(asked.digest))
    outcome = pb.Outcome.FromString(opened)
    prediction = decode_outcome(outcome, node="a", digest=asked.digest, records=1, classes=2)
    assert prediction.probabilities.tolist() == [[0.25, 0.75]]
    return during, search(process, marker, sealed[1000:1100])


def ask_plain(process, digest, anna, nodes, signer, marker):
    now = time.time_ns() // 1_000_000
    asked = make_query(signer, run=digest, node="", analyst="anna", x=marker.x, now_ms=now, reply_public=b"")
    with ThreadPoolExecutor(3) as pool:
        waiting = pool.submit(anna.ask_plain, digest, asked.statement, scores=True, wait_ms=120_000)
        asked_for = []
        for _ in range(20):
            relayed = [pool.submit(node.caller.next_query, wait_ms=3000) for node in nodes]
            asked_for += [(node, got) for node, query in zip(nodes, relayed, strict=True) if (got := query.result(60))]
            if asked_for:
                break
        ((node, query),) = asked_for
        read = node.read(query, digest, "", query.plain)
        during = search(process, marker, asked.statement.signature)
        outcome = outcome_of(node.caller.name, read.digest)
        node.caller.answer(query.query_id, signed=sign_answer(node.signer, read.digest, outcome))
        reply = waiting.result(120)
    assert reply.node_id == node.caller.name == max(zip(reply.scores, reply.nodes, strict=True))[1]
    return during


@pytest.mark.slow
def test_no_plaintext_of_a_sealed_query_is_in_the_coordinator(trained, dial, enrolled, coordinator_folder, tmp_path):
    process, digest = trained
    anna = dial("anna", process.port)
    nodes = [Node(dial(name, process.port), enrolled.root / f"node-{name}") for name in "ab"]
    folder = enrolled.root / "analyst-anna"
    signer = Signer((folder / "tls.key").read_bytes(), (folder / "tls.crt").read_bytes())
    nodes[0].serve(digest)
    secret, open_ = Marker(1), Marker(2)

    during, after = ask_sealed(process.process, digest, anna, nodes[0], signer, secret)
    assert during == (0, True)  # the sealed bytes are there, and seen: the search is thorough enough to see what waits
    assert after[0] == 0
    # the converse: in the plain form the coordinator reads the query, and all of it is found
    nodes[1].serve(digest)
    cells, there = ask_plain(process.process, digest, anna, nodes, signer, open_)
    assert cells >= len(open_.cells)
    assert there
    assert search(process.process, secret, b"?")[0] == 0

    files = [p for p in (*coordinator_folder.rglob("*"), tmp_path / "log") if p.is_file()]
    assert {"journal.sqlite", "log"} <= {p.name for p in files}
    for path in files:
        data = path.read_bytes()
        assert secret.count(data) == open_.count(data) == 0, path
    asked = [r for r in process.records() if r.get("event") == "query"]
    assert [(r["analyst"], r["run"], r["form"], r["outcome"]) for r in asked] == [
        ("anna", digest, "sealed", "relayed"),
        ("anna", digest, "plain", "answered"),
    ]
    assert 68 << 10 < asked[0]["bytes"] < 72 << 10  # padded
    assert process.end(signal.SIGTERM) == 0


def test_the_search_finds_any_32_bytes_of_a_marker():
    marker = Marker(3)
    data = marker.x.tobytes()
    for at in (0, 1, 7, 15, 16, 1000, len(data) - 32):
        assert marker.count(b"noise" + data[at : at + 32] + b"noise") >= 1
    assert marker.count(Marker(4).x.tobytes()) == 0
    assert marker.count(data) == 4096
