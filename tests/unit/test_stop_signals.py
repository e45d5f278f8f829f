"""A process that was asked to stop ends within its grace, whatever its main thread waits for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

BODY = """
import ctypes, sys, threading
from fedsecure.signals import asked_to_stop, stop_on_signals
stop = threading.Event()
with stop_on_signals(stop.set, grace={grace}, last_words=lambda grace: f"left after {{grace}}"):
    print("ready", flush=True)
    {wait}
print("in order", asked_to_stop(), flush=True)
sys.exit(5)
"""
ORDERLY = "stop.wait()"
STUCK_IN_PYTHON = "threading.Event().wait()"
#: A mutex that is locked twice: no signal interrupts the wait for it (POSIX pthread_mutex_lock).
STUCK_IN_C = "lock, m = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(128); lock(m); lock(m)"


def begin(wait: str, grace: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", BODY.format(wait=wait, grace=grace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_orderly_stop_is_left_alone(number: signal.Signals) -> None:
    process = begin(ORDERLY, 30.0)
    process.send_signal(number)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, out, err) == (5, "in order True\n", "")


@pytest.mark.parametrize("wait", [STUCK_IN_PYTHON, STUCK_IN_C])
def test_what_hangs_is_left_after_the_grace_with_a_word(wait: str) -> None:
    process = begin(wait, 0.5)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=240)
    assert time.monotonic() - began >= 0.4
    assert (process.returncode, out, err) == (0, "", "left after 0.5\n")


def test_a_full_pipe_behind_standard_error_does_not_keep_the_process() -> None:
    fill = "import os; os.set_blocking(2, False)\n    try:\n        while os.write(2, bytes(65536)): pass\n"
    fill += "    except OSError: os.set_blocking(2, True)\n    threading.Event().wait()"
    process = begin(fill, 0.5)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    process.communicate(timeout=240)


def test_without_a_signal_the_watchdog_ends_with_the_block() -> None:
    process = begin("pass", 0.1)
    out, _ = process.communicate(timeout=240)
    assert (process.returncode, out) == (5, "in order False\n")
