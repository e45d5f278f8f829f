"""A node on a machine that starts no further thread: it tries again, joins once it can, and always stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

#: While the file ``full`` is in the node's folder, no thread starts in its process.
BODY = """
import pathlib, sys, threading
from grpc._cython import cygrpc
full = pathlib.Path(sys.argv[1]) / "full"
for kind in (threading.Thread, cygrpc.ForkManagedThread):
    def start(thread, kept=kind.start):
        if full.exists():
            raise RuntimeError("can't start new thread")
        kept(thread)
    kind.start = start
sys.argv = ["fedsecure", "node", "run", "--dir", sys.argv[1]]
from fedsecure.cli import main
main()
"""


@pytest.fixture
def process(site):
    with (site.folder / "out.txt").open("wb") as out:
        made = subprocess.Popen(
            [sys.executable, "-c", BODY, str(site.folder)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    yield made
    if made.poll() is None:
        made.kill()
    made.wait(60)


def until(site, condition, seconds=90):
    end = time.monotonic() + seconds
    while not condition((site.folder / "out.txt").read_text()):
        assert time.monotonic() < end, (site.folder / "out.txt").read_text()
        time.sleep(0.05)


def test_it_tries_again_until_there_are_threads_and_works_on(site, script, plan_of, process):
    until(site, lambda text: "connected to" in text)
    (site.folder / "full").touch()
    until(site, lambda text: "cannot start another thread" in text)
    script.offer(plan := plan_of())
    script.ask(plan)
    (site.folder / "full").unlink()
    until(site, lambda text: script.complete)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    text = (site.folder / "out.txt").read_text()
    assert "Traceback" not in text
    assert "is given up" in text
    assert "left" not in text


def test_sigterm_ends_it_while_no_thread_starts(site, process):
    until(site, lambda text: "connected to" in text)
    (site.folder / "full").touch()
    until(site, lambda text: "cannot start another thread" in text)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    text = (site.folder / "out.txt").read_text()
    assert "Traceback" not in text
    assert text.splitlines()[-1].endswith("the node stops")
