"""A node on a machine that starts no further thread: it tries again, joins once it can, and always stops."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from forked_nodes import ForkedDaemon

#: While the file ``full`` is in the node's folder, no thread starts in its process.
BEFORE = """
import threading
from grpc._cython import cygrpc
full = folder / "full"
for kind in (threading.Thread, cygrpc.ForkManagedThread):
    def start(thread, kept=kind.start):
        if full.exists():
            raise RuntimeError("can't start new thread")
        kept(thread)
    kind.start = start
"""


@pytest.fixture
def process(site):
    (site.folder / "out.txt").touch()
    made = ForkedDaemon("node", site.folder, site.folder / "out.txt", before=BEFORE)
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
    assert process.wait(60) == 0
    text = (site.folder / "out.txt").read_text()
    assert "Traceback" not in text
    assert "is given up" in text
    assert "left" not in text


def test_sigterm_ends_it_while_no_thread_starts(site, process):
    until(site, lambda text: "connected to" in text)
    (site.folder / "full").touch()
    until(site, lambda text: "cannot start another thread" in text)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    text = (site.folder / "out.txt").read_text()
    assert "Traceback" not in text
    assert text.splitlines()[-1].endswith("the node stops")
