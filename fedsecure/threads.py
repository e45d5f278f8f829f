"""A machine that cannot start another thread, said as an error of ours: it passes, so what failed is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedsecure.errors import WireError

__all__ = ["lacks_thread", "no_thread", "threads_needed"]


def lacks_thread(error: BaseException) -> bool:
    """Whether ``error`` is CPython's way to say that the system refused another thread."""
    return isinstance(error, RuntimeError) and "start new thread" in str(error)


def no_thread(what: str) -> WireError:
    """The error for it. ``what`` the thread was for, as in "a call"."""
    return WireError(
        f"this machine cannot start another thread for {what}: it is out of threads or of memory",
        hint="free some, or raise the limit (ulimit -u; TasksMax and MemoryMax of the service)",
    )


@contextmanager
def threads_needed(what: str) -> Iterator[None]:
    """Turns the refusal of a thread inside the block into ``WireError``."""
    try:
        yield
    except RuntimeError as error:
        if not lacks_thread(error):
            raise
        raise no_thread(what) from None
