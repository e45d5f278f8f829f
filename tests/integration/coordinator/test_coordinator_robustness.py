"""The daemon's process under bad luck: its store removed, its port in use, strangers, a plan that takes for ever."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import ssl
import sys
import time
from pathlib import Path

import pytest

from fedsecure.errors import CertificateError
from fedsecure_coordinator.store.journal import Journal

sys.path.insert(0, str(Path(__file__).parents[2]))
from forked_nodes import ForkedDaemon

PLAN = """
format = 1
name = "trial"
rounds = 2
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
"""
#: A daemon whose runs take for ever to prepare, in a call that nothing can interrupt.
STUCK = """
import ctypes, sys
from fedsecure.methods.fedavg import FedAvg

def init_server(self, seed):
    print("preparing", file=sys.stderr, flush=True)
    ctypes.CDLL(None).sleep(600)

FedAvg.init_server = init_server
"""


class Daemon:
    """A coordinator's daemon with JSON logs, and every line that it writes to standard error."""

    def __init__(self, folder: Path, log: Path, before: str = "") -> None:
        self._log = log
        log.touch()
        self.process = ForkedDaemon("coordinator", folder, log, "--log-format", "json", before=before)

    def records(self) -> list[dict]:
        whole = self._log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]  # every line is an object, whoever wrote it

    def wait_for(self, condition, seconds: float = 60) -> dict:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := [r for r in self.records() if condition(r)]:
                return found[-1]
            time.sleep(0.05)
        raise AssertionError(self._log.read_text())


@pytest.fixture
def start(coordinator_folder, tmp_path):
    """Starts daemons; none outlives its test."""
    started = []

    def start(before: str = "") -> Daemon:
        log = tmp_path / f"log-{len(started)}"
        started.append(Daemon(coordinator_folder, log, before))
        return started[-1]

    yield start
    for daemon in started:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait(60)


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture
def run_cli(capsys):
    """Runs a command in this process: exit code, stdout, stderr."""
    from fedsecure.cli import run

    def call(*arguments) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["coordinator", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def ready(record: dict) -> bool:
    return record.get("event") == "ready"


def test_sigterm_and_abort_during_a_preparation_that_cannot_be_interrupted(
    start, coordinator_folder, plan_file, run_cli
):
    code, out, err = run_cli("submit", plan_file, "--dir", coordinator_folder)
    assert (code, err) == (0, "")
    digest = out.strip()
    assert out == f"{digest}\n"
    code, out, err = run_cli("submit", plan_file, "--dir", coordinator_folder)
    assert (code, out, err) == (0, f"{digest}\n", "known already: NEW\n")
    daemon = start(STUCK)
    daemon.wait_for(lambda r: r["message"] == "preparing")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(60) == 0  # the call goes on for ten minutes
    code, out, _ = run_cli("abort", "trial", "--dir", coordinator_folder)
    assert "before anything else is done for it" in out
    daemon = start(STUCK)
    daemon.wait_for(lambda r: r.get("event") == "aborted")
    assert not [r for r in daemon.records() if r["message"] == "preparing"]
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(60) == 0


def test_a_store_removed_under_the_daemon_ends_it(start, coordinator_folder, run_cli):
    daemon = start()
    daemon.wait_for(ready)
    shutil.rmtree(coordinator_folder / "store")
    assert daemon.process.wait(60) == 19
    failed = daemon.wait_for(lambda r: r.get("event") == "failed")
    assert "removed or replaced under the running daemon" in failed["message"]
    for verb in (("status",), ("runs",), ("export", "x", "--out", "o"), ("abort", "x")):
        code, _, err = run_cli(*verb, "--dir", coordinator_folder)
        assert (code, "no run was ever submitted here" in err) == (3, True)
    assert not (coordinator_folder / "store").exists()


def test_reading_writes_nothing_also_after_a_crash(start, coordinator_folder, plan_file, run_cli):
    run_cli("submit", plan_file, "--dir", coordinator_folder)
    store = coordinator_folder / "store"

    def all_files() -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in store.rglob("*") if p.is_file() and not p.name.endswith("-shm")}

    before = all_files()
    assert sorted(before) == ["journal.sqlite"]
    assert json.loads(run_cli("status", "--json", "--dir", coordinator_folder)[1])["runs"][0]["state"] == "NEW"
    assert all_files() == before
    daemon = start()
    daemon.wait_for(lambda r: r.get("event") == "opened")
    running = json.loads(run_cli("status", "--json", "--dir", coordinator_folder)[1])
    assert (running["daemon"], running["runs"][0]["state"]) == ("running", "JOINING")
    daemon.process.kill()
    daemon.process.wait(60)
    before = all_files()
    stopped = json.loads(run_cli("status", "--json", "--dir", coordinator_folder)[1])
    assert (stopped["daemon"], stopped["runs"][0]["state"]) == ("stopped", "JOINING")
    assert all_files() == before
    Journal(store / "journal.sqlite").close()
    assert run_cli("runs", "--dir", coordinator_folder)[1].count("JOINING") == 1


def test_a_port_in_use_is_one_json_line(start, coordinator_folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        settings = coordinator_folder / "coordinator.toml"
        settings.write_text(settings.read_text().replace("127.0.0.1:0", f"127.0.0.1:{taken.getsockname()[1]}"))
        daemon = start()
        assert daemon.process.wait(60) == 3
    (failed,) = daemon.records()
    assert failed["level"] == "error"
    assert "the port is in use" in failed["message"]
    assert "ss -ltnp" in failed["hint"]


def dial_without_certificate(port: int, ca: Path) -> None:
    """A handshake without a certificate; TLS 1.3 tells a refused client only when it reads."""
    context = ssl.create_default_context(cafile=ca)
    with (
        contextlib.suppress(ssl.SSLError, ConnectionError),
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        assert tls.recv(1) == b""


def test_refused_strangers_are_in_the_log_and_every_line_is_json(start, enrolled, coordinator_folder, live):
    daemon = start()
    port = daemon.wait_for(ready)["port"]
    for _ in range(3):
        dial_without_certificate(port, coordinator_folder / "ca.crt")
    refused = daemon.wait_for(lambda r: r.get("source") == "grpc" and r.get("event") == "refused")
    assert refused["level"] == "warning"
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in refused["message"]
    live.daemon = type("Elsewhere", (), {"port": port})
    caller = live.caller("a")
    for _ in range(3):
        with pytest.raises(CertificateError, match="speaks as another"):
            caller.hello(node_id="b")
    spoke = daemon.wait_for(lambda r: r.get("event") == "refused" and "fingerprint" in r)
    assert spoke["fingerprint"].startswith("SHA256:")
    assert "127.0.0.1:" in spoke["peer"].replace("%3A", ":")
    assert "speaks as another" in spoke["message"]
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(60) == 0
    assert len([r for r in daemon.records() if "fingerprint" in r]) == 1


def test_a_node_in_two_places_at_once_is_warned_of(live, caplog):
    live.start()
    first, second = live.caller("a"), live.caller("a", options=[("grpc.use_local_subchannel_pool", 1)])
    for caller in (first, second):
        caller.hello()
    assert "at once" not in caplog.text  # it may have reconnected
    for caller in (first, second):
        caller.hello()
    assert caplog.text.count("at once: was its folder copied?") == 1
