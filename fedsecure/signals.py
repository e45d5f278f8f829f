"""How a daemon is asked to stop: SIGTERM and SIGINT, once; a second SIGINT is Python's own again.

Who was asked to stop is gone within ``grace`` seconds, whatever the process waits for. A thread that is started before
anything can go wrong reads the signal where the C handler writes it (``signal.set_wakeup_fd``), so that it hears of it
even while the main thread is stuck, and then leaves the process. State is on the disk all along.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from fedsecure.threads import threads_needed

__all__ = ["GRACE_SECONDS", "asked_to_stop", "stop_on_signals"]

#: What an orderly stop may take before the process is left (seconds).
GRACE_SECONDS = 15.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_asked = threading.Event()


def asked_to_stop() -> bool:
    """Whether a signal asked this process to stop: its end then waits for no thread."""
    return _asked.is_set()


@contextmanager
def stop_on_signals(
    stop: Callable[[], None], *, grace: float = GRACE_SECONDS, last_words: Callable[[float], str] = lambda grace: ""
) -> Iterator[None]:
    """Call ``stop`` on either signal while the block lasts; outside the main thread nothing is installed.

    When the block has not ended ``grace`` seconds after the signal, the process ends at once with exit code 0, as after
    an orderly stop, and ``last_words(grace)`` go to standard error if that takes them. Raises ``WireError`` when the
    thread that sees to this cannot be started.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        _asked.set()
        stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with _watched(grace, last_words):
        before = {number: signal.signal(number, handler) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


@contextmanager
def _watched(grace: float, last_words: Callable[[float], str]) -> Iterator[None]:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    over = threading.Event()
    watchdog = threading.Thread(target=_watch, args=(reader, over, grace, last_words), name="watchdog", daemon=True)
    try:
        with threads_needed("its orderly stop"):
            watchdog.start()
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
    finally:
        over.set()
        os.close(writer)  # the watchdog reads the end of it
        if watchdog.ident is not None:
            watchdog.join()
        os.close(reader)


def _watch(reader: int, over: threading.Event, grace: float, last_words: Callable[[float], str]) -> None:
    """Wait for one of our signals, then for the block to end; leave the process if it does not."""
    while numbers := os.read(reader, 64):
        if any(number in _SIGNALS for number in numbers):
            if not over.wait(grace):
                _last_words(last_words(grace))
                os._exit(0)  # flushes no buffer: their locks may be held for good, and logs flush every line
            return


def _last_words(text: str) -> None:
    """A line on standard error, unless that would block: its reader may be what everybody waits for."""
    with suppress(OSError, ValueError):
        if text and select.select([], [2], [], 0)[1]:
            os.write(2, text.encode(errors="backslashreplace") + b"\n")
            over = threading.Event()
            over.wait(0.2)  # for the thread that passes on what comes there
