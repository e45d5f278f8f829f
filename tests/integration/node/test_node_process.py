"""The node as a process: signals, kill -9, exit codes, verbs beside it."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from fedsecure.cli import run as command

sys.path.insert(0, str(Path(__file__).parents[2]))
from forked_nodes import ForkedDaemon


@pytest.fixture
def process(site):
    """Starts ``fedsecure node run``; whatever still runs at the end is killed."""
    started = []

    def start(*options):
        (site.folder / "out.txt").touch()
        started.append(ForkedDaemon("node", site.folder, site.folder / "out.txt", *options))
        return started[-1]

    yield start
    for one in started:
        if one.poll() is None:
            one.kill()
        one.wait(60)


def until(condition, site, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, (site.folder / "out.txt").read_text()
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_it_in_order_also_while_computing(site, script, plan_of, process, number):
    script.offer(plan := plan_of(settings={"local_steps": 1_000_000}))
    script.ask(plan)
    node = process("--log-format", "json")
    until(lambda: "computing" in (site.folder / "out.txt").read_text(), site)
    time.sleep(0.5)
    node.send_signal(number)
    assert node.wait(120) == 0  # within seconds on an idle machine; torch may still be loading on a busy one
    lines = [json.loads(line) for line in (site.folder / "out.txt").read_text().splitlines()]
    assert lines[-1]["event"] == "stopped"
    assert {"time", "event", "message"} <= set(lines[0])


def test_killed_in_the_middle_of_a_transfer_it_sends_the_same_bytes_after_a_restart(
    site, script, plan_of, process, capsys
):
    script.cut_uploads = 10**6
    script.offer(plan := plan_of())
    script.ask(plan)
    node = process()
    until(lambda: script.partial, site)
    node.kill()
    node.wait(60)
    (digest,) = script.partial
    script.partial.clear()
    script.cut_uploads = 0
    script.end(plan)
    assert process("--exit-when-done").wait(120) == 0, (site.folder / "out.txt").read_text()
    import hashlib

    (sent,) = script.complete.values()
    assert hashlib.sha256(sent).hexdigest() == digest
    folder = ["--dir", str(site.folder)]
    assert command(["node", "verify-log", "--json", *folder]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 3
    assert command(["node", "releases", "--json", *folder]) == 0
    (release,) = json.loads(capsys.readouterr().out)["releases"]
    assert (release["state"], release["payload"]["sha256"]) == ("acknowledged", digest)


def test_faults_have_their_exit_codes(site, script, plan_of, process, identities):
    (site.folder / "policy.toml").unlink()
    script.offer(plan_of())
    assert process("--exit-when-done").wait(120) == 4
    other = site.folder / "ca.crt"
    other.write_bytes((site.folder / "tls.crt").read_bytes())
    assert process().wait(120) == 6
    (site.folder / "node.toml").write_text("format = 9")
    assert process().wait(120) == 3
    text = (site.folder / "out.txt").read_text()
    assert "Traceback" not in text
    assert text.count("error: ") == 3


def test_a_second_process_on_one_store_is_refused(site, script, process):
    process()
    until(lambda: script.hellos, site)
    second = process()
    assert second.wait(120) == 3
    assert "another node daemon" in (site.folder / "out.txt").read_text()
