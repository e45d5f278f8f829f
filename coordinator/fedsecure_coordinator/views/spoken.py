"""What others write to the process's standard error - gRPC's C core, C libraries, Python's warnings - as log records.

gRPC's core says why it refused a stranger's handshake, and only there. A pipe takes the place of file descriptor 2;
each line becomes a record of the logger ``fedsecure.stderr``, and the log itself goes to the real standard error.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from typing import IO

from fedsecure_coordinator.quota import Quota

__all__ = ["real_stderr", "record_of"]

#: A line of the C core: level, date and time, thread, place in the source, text (absl's log format).
_CORE = re.compile(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ([\w.]+:\d+)\] (.*)")
_LEVELS = {"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}
#: What absl says once about itself.
_PREAMBLE = "All log messages before absl::InitializeLog() is called are written to STDERR"
#: A refused handshake, as the C core puts it.
_REFUSED = "Handshake failed"
#: Lines longer than this are cut (characters).
MAX_LINE = 2000
#: On the end: time for the last lines to be passed on (seconds).
LAST_SECONDS = 2.0
_log = logging.getLogger("fedsecure.stderr")
#: Without a handler, logging would write to standard error, and its lines would come back here for ever.
logging.getLogger("fedsecure").addHandler(logging.NullHandler())


def record_of(line: str) -> tuple[int, str, dict[str, str]] | None:
    """A line as level, text and fields; ``None`` for one that says nothing. A refused handshake is a warning."""
    if not line.strip() or _PREAMBLE in line:
        return None
    found = _CORE.fullmatch(line)
    if found is None:
        return logging.WARNING, line[:MAX_LINE], {"source": "stderr"}
    level, place, text = _LEVELS[found[1]], found[2], found[3][:MAX_LINE]
    if text.startswith(_REFUSED):
        fields = {"source": "grpc", "place": place, "event": "refused"}
        return logging.WARNING, f"a peer was refused in the TLS handshake: {text}", fields
    return level, text, {"source": "grpc", "place": place}


@contextlib.contextmanager
def real_stderr() -> Iterator[IO[str]]:
    """The real standard error, to write the log to, while lines of others become records of a logger.

    Where ``sys.stderr`` was replaced by something else than the process's own, it is that, and nothing is taken over.
    """
    try:
        own = sys.stderr.fileno() == 2
    except (OSError, ValueError, AttributeError):
        own = False
    if not own:
        yield sys.stderr
        return
    sys.stderr.flush()
    reader, writer = os.pipe()
    real = os.dup(2)
    os.dup2(writer, 2)
    os.close(writer)
    thread = threading.Thread(target=_pass_on, args=(reader,), name="stderr", daemon=True)
    thread.start()
    stream = os.fdopen(os.dup(real), "w", encoding="utf-8", errors="backslashreplace")
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os.dup2(real, 2)  # closes the pipe's last writer, so that the thread ends
        thread.join(LAST_SECONDS)
        os.close(real)
        with contextlib.suppress(OSError):  # a full disk stops no daemon from ending in order
            stream.close()


def _pass_on(reader: int) -> None:
    quota = Quota()
    with os.fdopen(reader, "r", encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            record = record_of(line.rstrip("\n"))
            if record is None:
                continue
            level, text, fields = record
            times = quota.take(re.sub(r"0x[0-9a-f]+|\d+", "0", text))
            if times:
                _log.log(level, "%s%s", text, _again(times), extra={"fields": {**fields, "times": times}})


def _again(times: int) -> str:
    """How often something was not said since it was last said, in words."""
    return f" ({times} times)" if times > 1 else ""
