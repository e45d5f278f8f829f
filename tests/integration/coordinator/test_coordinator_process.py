"""The coordinator as an operator has it: the command line, the process, kill -9, SIGTERM, exit codes, export."""

from __future__ import annotations

import json
import signal
import time
from datetime import UTC, datetime

import numpy as np
import pytest

from fedsecure.crypto.authority import init_ca, sign_request
from fedsecure.data.dataset import Dataset
from fedsecure.errors import WireError
from fedsecure.method import ClientContext
from fedsecure.methods import build_method
from fedsecure.plan import load_plan
from fedsecure.randomness import node_seed
from fedsecure.simulation import simulate
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution, upload_key
from fedsecure.wire.v1 import coordinator_pb2 as pb

PLAN = """
format = 1
name = "trial"
rounds = {rounds}
seed = 11
randomness = "plan"
[task]
kind = "image"
classes = ["zero", "one"]
shape = [1, 8, 8]
[model]
name = "mlp"
hidden = [8]
[method]
name = "fedavg"
local_steps = 3
[cohort]
min_nodes = 2
nodes = ["a", "b"]
[deadlines]
join = {join}
exchange = 60.0
"""


@pytest.fixture
def plan_file(tmp_path):
    def write(rounds=2, join=60.0):
        path = tmp_path / "plan.toml"
        path.write_text(PLAN.format(rounds=rounds, join=join))
        return path

    return write


def records(node):
    generator = np.random.default_rng(ord(node))
    y = np.arange(20) % 2
    x = generator.random((20, 1, 8, 8), dtype=np.float32) * 0.5 + y[:, None, None, None].astype(np.float32) * 0.5
    return Dataset(x.astype(np.float32), y.astype(np.int64), ("zero", "one"))


def contribution(plan, method, node, round_, broadcast):
    ctx = ClientContext(node=node, round=round_, seed=node_seed(plan.seed, node))
    return method.client_update(method.exchanges[0], Tensors.from_bytes(broadcast), Tensors(), records(node), ctx)[1]


def send(caller, plan, method, round_):
    exchange = caller.work(plan.digest()).exchange
    assert exchange.round == round_
    given = contribution(plan, method, caller.name, round_, caller.download(exchange.broadcast_digest))
    payload = encode_contribution(given)
    key = upload_key(
        payload,
        node_id=caller.name,
        plan_digest=plan.digest(),
        round_=round_,
        attempt=0,
        exchange=exchange.exchange,
    )
    assert caller.upload(key, payload.data).complete
    return key, payload.data


def hear_the_end(caller, digest):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            work = caller.work(digest, wait_ms=5000)
        except WireError:  # it is starting
            time.sleep(0.1)
            continue
        if work.WhichOneof("work") == "ended":
            return work.ended.state
    raise AssertionError("the end was not heard")


@pytest.mark.slow
def test_kill_9_loses_nothing_that_was_acknowledged(run_cli, begin, plan_file, dial, coordinator_folder, tmp_path):
    path = plan_file()
    plan, _ = load_plan(path)
    method = build_method(plan)
    assert run_cli("submit", path, "--dir", coordinator_folder).strip() == plan.digest()

    process = begin()
    process.find("opened")
    a, b = dial("a", process.port), dial("b", process.port)
    a.join(plan.digest())
    b.join(plan.digest())
    key, data = send(a, plan, method, 0)
    assert process.end(signal.SIGKILL) == -signal.SIGKILL

    process = begin()
    assert process.find("resumed")["where"] == f"round 1, exchange {method.exchanges[0]}, attempt 1 is open"
    a, b = dial("a", process.port), dial("b", process.port)
    assert a.offset(key).complete
    assert a.upload(key, data).complete
    send(b, plan, method, 0)
    send(a, plan, method, 1)
    send(b, plan, method, 1)
    process.end(signal.SIGKILL)  # perhaps in the middle of the last update, perhaps after it

    process = begin()
    for caller in (dial("a", process.port), dial("b", process.port)):
        assert hear_the_end(caller, plan.digest()) == pb.RUN_STATE_COMPLETED
    assert process.end(signal.SIGTERM) == 0
    status = json.loads(run_cli("status", "--json", "--dir", coordinator_folder))
    assert status["daemon"] == "stopped"
    assert [(r["state"], r["reason"]) for r in status["runs"]] == [("COMPLETED", "")]
    assert [r["stragglers"] for r in status["runs"][0]["history"]] == [[], []]

    out = tmp_path / "out"
    files = json.loads(run_cli("export", "trial", "--out", out, "--json", "--dir", coordinator_folder))["files"]
    exported = Tensors.from_bytes((out / "model.safetensors").read_bytes())
    expected = simulate(plan, method, {n: records(n) for n in "ab"})
    assert exported == method.model(expected.server)  # bit for bit, two crashes notwithstanding
    card = (out / "model_card.md").read_text()
    for text in (plan.digest(), "COMPLETED", "`none`", "zero, one", "fedavg", "a, b"):
        assert text in card
    assert sorted(files) == ["card", "history", "model", "plan"]
    assert (out / "plan.json").read_bytes() == plan.canonical()


def test_sigterm_is_orderly_and_an_aborted_run_is_exit_17(run_cli, begin, plan_file, dial, coordinator_folder):
    path = plan_file(join=2.0)
    process = begin("--plan", path)
    assert process.find("opened")["rounds"] == 2
    second = run_cli("run", "--dir", coordinator_folder, code=3)
    assert "another coordinator daemon (process " in second
    assert json.loads(run_cli("status", "--json", "--dir", coordinator_folder))["daemon"] == "running"
    began = time.monotonic()
    assert process.end(signal.SIGTERM) == 0
    assert time.monotonic() - began < 30
    assert process.records()[-1]["event"] == "stopping"
    errors = run_cli("run", "--exit-when-done", "--dir", coordinator_folder, code=17)
    assert "was aborted: quorum: fewer than 2 nodes; missing: a; b" in errors
    (found,) = json.loads(run_cli("runs", "--json", "--dir", coordinator_folder))["runs"]
    assert (found["state"], found["reason"]) == ("ABORTED", "quorum: fewer than 2 nodes; missing: a; b")
    refused = run_cli("submit", path, "--dir", coordinator_folder, code=3)
    assert "is over already: ABORTED (quorum" in refused
    assert "change its name or seed" in refused
    text = run_cli("status", "--dir", coordinator_folder)
    assert "reason: quorum" in text


def test_submitting_and_aborting_while_the_daemon_runs(run_cli, begin, plan_file, coordinator_folder):
    process = begin()
    digest = run_cli("submit", plan_file(), "--dir", coordinator_folder).strip()
    process.find("opened")
    abort = ("abort", digest[:8], "--reason", "a mistake", "--json", "--dir", coordinator_folder)
    assert json.loads(run_cli(*abort)) == {
        "digest": digest,
        "name": "trial",
        "reason": "a mistake",
        "daemon": "running",
    }
    assert process.find("aborted")["reason"] == "operator: a mistake"
    assert "is over already: ABORTED" in run_cli("abort", "trial", "--dir", coordinator_folder, code=8)
    assert process.end(signal.SIGINT) == 0


def test_the_folder_is_made_by_the_real_steps(run_cli, tmp_path):
    now = datetime.now(UTC)
    folder, ca_folder = tmp_path / "c", tmp_path / "ca"
    ca = init_ca(ca_folder, "steps.example", None, 1, now)
    said = run_cli("init", "--federation", "steps.example", "--dns", "localhost", "--dir", folder)
    assert "request fingerprint: SHA256:" in said
    assert (folder / "tls.key").stat().st_mode & 0o777 == 0o600
    pem = sign_request(
        ca_folder,
        (folder / "tls.csr").read_bytes(),
        role="coordinator",
        name="coordinator",
        days=5,
        passphrase=None,
        now=now,
    )
    (tmp_path / "c.crt").write_bytes(pem)
    enroll = ("enroll", "--cert", tmp_path / "c.crt", "--ca-cert", ca_folder / "ca.crt", "--dir", folder)
    wrong = "SHA256:" + "00" * 32
    assert "has the fingerprint" in run_cli(*enroll, "--fingerprint", wrong, code=6)
    assert "enrolled as the coordinator of steps.example" in run_cli(*enroll, "--fingerprint", ca.fingerprint)
    assert "exists already" in run_cli("init", "--federation", "x.y", "--dns", "h", "--dir", folder, code=3)
    for verb in ("runs", "status"):  # who looks makes nothing
        assert "no run was ever submitted here" in run_cli(verb, "--dir", folder, code=3)
    assert not (folder / "store").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "coordinator.toml: format: missing; federation: missing; listen: missing"),
        ('format = 1\nfederation = "f.x"\nlisten = "nohost"', "listen: 'nohost' is not host:port"),
        ('format = 1\nfederation = "f.x"\nlisten = "h:99999"', "does not end in a port"),
        ('format = 1\nfederation = "F X"\nlisten = "h:1"', "federation"),
        ('format = 1\nfederation = "f.x"\nlisten = "h:1"\nlimit = 3', "limit: unknown key"),
        (
            'format = 1\nfederation = "f.x"\nlisten = "h:1"\n[limits]\nmax_nodes = 0',
            "limits.max_nodes: 0 is out of range",
        ),
    ],
)
def test_faults_of_the_settings_are_named(run_cli, tmp_path, text, message):
    (tmp_path / "coordinator.toml").write_text(text)
    assert message in run_cli("status", "--dir", tmp_path, code=3)


def test_what_is_missing_is_named(run_cli, tmp_path, coordinator_folder):
    assert "coordinator.toml: no such file" in run_cli("run", "--dir", tmp_path, code=3)
    assert "no run was ever submitted here" in run_cli(
        "export", "x", "--out", tmp_path, "--dir", coordinator_folder, code=3
    )
    (coordinator_folder / "tls.key").chmod(0o644)
    assert "tls.key" in run_cli("run", "--dir", coordinator_folder, code=6)
    (coordinator_folder / "tls.key").chmod(0o600)
    (coordinator_folder / "tls.crt").unlink()
    assert "tls.crt" in run_cli("run", "--dir", coordinator_folder, code=6)
