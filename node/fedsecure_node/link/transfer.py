"""Patience with a network: bounded exponential backoff with jitter, and calls that a shutdown interrupts."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import grpc

from fedsecure.errors import WireError
from fedsecure.method import Cancelled
from fedsecure.wire.status import from_rpc_error

__all__ = ["Backoff", "await_call", "check_stop"]

#: First, and longest, pause between tries (seconds); each is doubled, then drawn between half and all of it.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
#: How often a waiting call looks whether it should stop (seconds).
LOOK_S = 0.2
#: A call that is not over so long after its deadline never will be: nothing watches over it (seconds).
OVERDUE_S = 10.0
_jitter = random.SystemRandom()

T = TypeVar("T")


def check_stop(stop: threading.Event) -> None:
    """Raise ``Cancelled`` when the daemon was asked to stop."""
    if stop.is_set():
        raise Cancelled("the node was asked to stop")


class Backoff:
    """Pauses between tries: half a second at first, doubling, at most 30 s, with jitter."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._next = FIRST_PAUSE_S

    def reset(self) -> None:
        """The last try worked."""
        self._next = FIRST_PAUSE_S

    def pauses(self) -> Iterator[float]:
        """The pauses that follow, without waiting."""
        while True:
            top, self._next = self._next, min(2 * self._next, LONGEST_PAUSE_S)
            yield _jitter.uniform(top / 2, top)

    def wait(self) -> float:
        """Wait for the next pause, or until asked to stop (then ``Cancelled``). Returns the seconds waited."""
        pause = next(self.pauses())
        self._stop.wait(pause)
        check_stop(self._stop)
        return pause


def await_call(
    call: grpc.Future[T],
    stop: threading.Event,
    wake: Callable[[], bool] | None = None,
    *,
    within: float = math.inf,
) -> T | None:
    """The answer of a call; ``None`` when ``wake`` said yes first. Raises ``Cancelled`` at a stop, the peer's error, or
    ``WireError`` when gRPC itself does not end the call ``OVERDUE_S`` after the ``within`` seconds that it had."""
    end = time.monotonic() + within + OVERDUE_S
    while True:
        try:
            return call.result(timeout=LOOK_S)
        except grpc.FutureTimeoutError:
            if time.monotonic() > end:
                raise WireError("a call to the coordinator was never ended", hint="it is tried again") from None
            if stop.is_set():
                call.cancel()
                check_stop(stop)
            if wake is not None and wake():
                call.cancel()
                return None
        except grpc.FutureCancelledError:
            check_stop(stop)
            raise WireError("the call to the coordinator was cancelled", hint="it is tried again") from None
        except grpc.RpcError as error:
            check_stop(stop)
            raise from_rpc_error(error) from None
