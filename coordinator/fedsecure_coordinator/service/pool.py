"""The threads that answer calls, on a machine that may refuse another one."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from fedsecure.threads import lacks_thread
from fedsecure_coordinator.quota import Quota

__all__ = ["CallPool"]

_log = logging.getLogger("fedsecure.coordinator")


class CallPool(ThreadPoolExecutor):
    """A pool that keeps a call for the threads that there are when the machine starts no further one.

    gRPC's serving thread hands every call to the pool; an exception there would end that thread, and with it all
    serving, while the process goes on (grpcio 1.85, ``grpc/_server.py``).
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads, thread_name_prefix="call")
        self._quota = Quota()

    def _adjust_thread_count(self) -> None:
        """Called by ``submit`` once a call is in the queue (CPython 3.11 and later)."""
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            if not lacks_thread(error):
                raise
            if self._quota.take("thread"):
                _log.warning(
                    "this machine cannot start another thread: calls wait for one of %d threads", len(self._threads)
                )
