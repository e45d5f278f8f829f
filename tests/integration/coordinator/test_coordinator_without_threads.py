"""A coordinator on a machine that starts no further thread: it serves with those it has, and always stops."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from fedsecure.errors import WireError
from fedsecure_coordinator.service.pool import CallPool

sys.path.insert(0, str(Path(__file__).parents[2]))
from forked_nodes import ForkedDaemon

#: While the file ``full`` is in the coordinator's folder, no thread starts in its process.
BEFORE = """
import threading
full = folder / "full"
def start(thread, kept=threading.Thread.start):
    if full.exists():
        raise RuntimeError("can't start new thread")
    kept(thread)
threading.Thread.start = start
"""


@pytest.fixture
def process(coordinator_folder):
    log = coordinator_folder / "log"
    log.touch()
    made = ForkedDaemon("coordinator", coordinator_folder, log, before=BEFORE)
    end = time.monotonic() + 60
    while "listening on" not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    made.port = int(log.read_text().split("listening on 127.0.0.1:")[1].split()[0])
    made.log = log
    yield made
    if made.poll() is None:
        made.kill()
    made.wait(60)


def until_it_has_started(caller):
    end = time.monotonic() + 60
    while True:
        try:
            caller.work(wait_ms=1)
        except WireError:
            assert time.monotonic() < end
            time.sleep(0.05)
        else:
            return


def test_it_serves_on_with_the_threads_it_has_and_stops(process, coordinator_folder, dial):
    caller = dial("a", process.port)
    assert caller.hello().federation
    until_it_has_started(caller)
    (coordinator_folder / "full").touch()
    waiting = threading.Thread(target=lambda: caller.work(wait_ms=3000), daemon=True)
    waiting.start()  # takes the one thread that there is, so that the next call asks for another
    time.sleep(0.5)
    for _ in range(3):
        assert caller.hello().federation
    waiting.join(30)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    text = process.log.read_text()
    assert "this machine cannot start another thread: calls wait" in text
    assert "Traceback" not in text


def test_a_pool_keeps_a_call_for_the_threads_there_are(monkeypatch):
    with CallPool(4) as pool:
        free, held = threading.Event(), threading.Event()

        def hold():
            held.set()
            free.wait(60)

        pool.submit(hold)
        assert held.wait(60)

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        later = pool.submit(lambda: "answered")
        free.set()
        assert later.result(60) == "answered"


def test_another_fault_of_a_thread_is_not_hidden(monkeypatch):
    def broken(thread):
        raise RuntimeError("another fault")

    with CallPool(1) as pool:
        monkeypatch.setattr(threading.Thread, "start", broken)
        with pytest.raises(RuntimeError, match="another fault"):
            pool.submit(print)
