"""A channel whose calls begin with a named error or not at all, and which is closed in bounded time.

gRPC registers a call with its channel and only then starts the thread that watches over the channel's calls. When the
machine refuses that thread, no call on that channel is ever answered, and closing it waits for a call that nobody ends
(grpcio 1.85). Such a channel is given up, and so is one that does not close in time: its connection ends with the
process, or when the peer finds it silent.

A stub registers its calls with the channel as it is made, without any lock: on a channel that is closed, or closing in
another thread, that may end the process (SIGSEGV, seen once). So stubs are made here, and none once closing has begun.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Final, TypeVar

import grpc

from fedsecure.errors import WireError
from fedsecure.threads import lacks_thread, no_thread

__all__ = ["CLOSE_S", "Line"]

#: How long closing a channel may take (seconds).
CLOSE_S: Final = 3.0
T = TypeVar("T")


class Line:
    """One channel. Several threads may use it."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self._lost = threading.Event()
        self._making = threading.Lock()
        self._closing = False

    @property
    def lost(self) -> bool:
        """Whether calls on this channel can no longer be answered."""
        return self._lost.is_set()

    def stub(self, kind: Callable[[grpc.Channel], T]) -> T:
        """A stub of the channel's calls. Raises ``WireError`` once the channel is closed or about to be."""
        with self._making:
            if self._closing:
                raise _closed()
            return kind(self.channel)

    def begin(self, start: Callable[[], T]) -> T:
        """Start a call: ``start()``. Raises ``WireError`` when it cannot be: the channel is closed or lost, or the
        machine cannot start the thread that it needs."""
        if self.lost:
            raise no_thread("the calls of this connection")
        try:
            return start()
        except RuntimeError as error:
            if not lacks_thread(error):
                raise
            self._lost.set()
            raise no_thread("a call") from None
        except ValueError:  # how gRPC says it
            raise _closed() from None

    def close(self, *, within: float = CLOSE_S) -> bool:
        """Close the channel; calls in flight end. Returns whether it is closed: a lost one, or one that is not closed
        ``within`` seconds, is given up."""
        with self._making:
            self._closing = True
        if not self.lost and self._close(within):
            return True
        self._lost.set()
        _keep_for_good(self.channel)
        return False

    def _close(self, within: float) -> bool:
        done = threading.Event()

        def close() -> None:
            self.channel.close()
            done.set()

        try:
            threading.Thread(target=close, name="closing", daemon=True).start()
        except RuntimeError as error:
            if not lacks_thread(error):
                raise
            return False
        return done.wait(within)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _closed() -> WireError:
    return WireError("the connection to the coordinator was closed", hint="it is made anew")


def _keep_for_good(channel: grpc.Channel) -> None:
    """Never let go of ``channel``: gRPC closes one in its finaliser, which would wait as long, here or at the
    process's end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(channel))
