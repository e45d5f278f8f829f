"""Channels on a machine that starts no further thread: a named error, and closing that ends."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import grpc
import pytest

from fedsecure.errors import WireError
from fedsecure.threads import lacks_thread, threads_needed
from fedsecure.wire.line import Line

BODY = """
import grpc, sys, time
from grpc._cython import cygrpc
from fedsecure.errors import WireError
from fedsecure.wire.line import Line

def refuse(thread):
    raise RuntimeError("can't start new thread")

line = Line(grpc.insecure_channel("localhost:1"))
ask = line.channel.unary_unary("/a/b")
kept = cygrpc.ForkManagedThread.start
cygrpc.ForkManagedThread.start = refuse
for _ in range(2):
    try:
        line.begin(lambda: ask.future(b"", timeout=1))
    except WireError as error:
        print(error)
    cygrpc.ForkManagedThread.start = kept  # the channel stays lost when the machine has threads again
begin = time.monotonic()
print(line.close(), time.monotonic() - begin < 2.5)
del line, ask
sys.exit(7)
"""


def test_a_call_whose_thread_cannot_start_is_a_named_error_and_the_process_ends() -> None:
    done = subprocess.run([sys.executable, "-c", BODY], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 7, done.stderr
    first, second, closed = done.stdout.splitlines()
    assert first == ("this machine cannot start another thread for a call: it is out of threads or of memory")
    assert "for the calls of this connection" in second
    assert closed == "False True"


def test_a_channel_that_does_not_close_is_given_up_in_time() -> None:
    forever = threading.Event()

    class Stuck:
        def close(self) -> None:
            forever.wait()

    line = Line(Stuck())  # type: ignore[arg-type]
    begin = time.monotonic()
    assert line.close(within=0.2) is False
    assert time.monotonic() - begin < 5
    assert line.lost
    with pytest.raises(WireError, match="cannot start another thread"):
        line.begin(lambda: None)
    forever.set()


def test_a_machine_without_threads_closes_nothing_and_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    line = Line(grpc.insecure_channel("localhost:1"))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert line.close() is False


def test_a_sound_channel_closes_and_then_refuses_calls_by_name() -> None:
    with Line(grpc.insecure_channel("localhost:1")) as line:
        ask = line.channel.unary_unary("/a/b")
    assert not line.lost
    with pytest.raises(WireError, match="was closed"):
        line.begin(lambda: ask.future(b""))


def test_a_stub_of_a_channel_that_is_closed_is_a_named_error_and_no_crash() -> None:
    """gRPC's own way may end the process (SIGSEGV): so in one of its own, a hundred times while another thread closes.
    Without the lock it would never be refused."""
    body = """
import threading
import grpc
from fedsecure.errors import WireError
from fedsecure.wire.line import Line
from fedsecure.wire.v1.prediction_pb2_grpc import PredictionStub

said = set()
for _ in range(100):
    line = Line(grpc.insecure_channel("localhost:1"))
    line.stub(PredictionStub)
    closing = threading.Thread(target=line.close)
    closing.start()
    try:
        while True:
            line.stub(PredictionStub)
    except WireError as error:
        said.add(str(error))
    closing.join()
print(said)
"""
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, "{'the connection to the coordinator was closed'}\n"), done.stderr


def test_other_runtime_errors_stay_what_they_are() -> None:
    assert not lacks_thread(ValueError("can't start new thread"))
    with pytest.raises(RuntimeError, match="another"), threads_needed("x"):
        raise RuntimeError("another")
    with pytest.raises(WireError, match="thread for the queries"), threads_needed("the queries"):
        raise RuntimeError("can't start new thread")
