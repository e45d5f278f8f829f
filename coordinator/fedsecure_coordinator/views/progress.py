"""What the operator sees while the daemon runs: a live table on a terminal, plain lines elsewhere, JSON on request."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import IO, Any, Literal

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedsecure.text import printable
from fedsecure_coordinator.runs.notices import Notice
from fedsecure_coordinator.views.runs import counted_from_1, figures, sentence

__all__ = ["LogFormat", "Progress", "runs_table"]

LogFormat = Literal["text", "json"]


class Progress:
    """Writes notices and log records to ``stream`` (stderr).

    ``views``: the runs as ``run_view`` describes them, for the live table, which is shown when ``stream`` is a terminal
    and the format is text.
    """

    def __init__(self, stream: IO[str], log_format: LogFormat, views: Callable[[], list[dict[str, Any]]]) -> None:
        self._stream, self._format, self._views = stream, log_format, views
        self._lock = threading.Lock()
        self._live: Live | None = None
        if log_format == "text" and stream.isatty():
            self._live = Live(console=Console(file=stream), get_renderable=self._table, refresh_per_second=2)

    def showing(self) -> AbstractContextManager[object]:
        """Show the live table inside this block, and take log records of our packages."""
        return _Showing(self)

    def notice(self, notice: Notice) -> None:
        """Report what happened to a run."""
        text = f"{notice.name} ({notice.digest[:12]}): {sentence(notice.kind, notice.detail)}"
        fields = {"run": notice.digest, "name": notice.name, "event": notice.kind, **counted_from_1(notice.detail)}
        self.line(text, fields)

    def line(self, text: str, fields: dict[str, Any], level: str = "info") -> None:
        """One line, or one JSON object. A log that cannot be written (a full disk, a closed pipe) stops no run."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        text = printable(text)  # nothing can steer the operator's terminal
        with self._lock, suppress(OSError):
            if self._format == "json":
                record = {"time": now, "level": level, "message": text, **fields}
                self._stream.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
                self._stream.flush()
            elif self._live is not None and self._live.is_started:
                self._live.console.print(f"{now} {text}", markup=False, highlight=False)
            else:
                self._stream.write(f"{now} {text}\n")
                self._stream.flush()

    def _table(self) -> Table:
        return runs_table(self._views())


def runs_table(views: Iterable[dict[str, Any]]) -> Table:
    """The runs as a table for a terminal."""
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "plan", "method", "state", "round", "nodes", "last figures"):
        table.add_column(heading, no_wrap=heading in ("run", "state", "round"))
    for view in views:
        nodes = view["nodes"]
        waiting = (
            f"{len(nodes['contributed'])}/{len(nodes['cohort'])}" if nodes["cohort"] else str(len(nodes["joined"]))
        )
        measured = [r["metrics"] for r in view["history"] if r["metrics"]]
        state = view["state"] + (f" {view['exchange']}" if view["exchange"] else "")
        table.add_row(
            view["digest"][:12],
            view["name"],
            view["method"],
            state,
            f"{view['round']}/{view['rounds']}",
            waiting,
            figures(measured[-1]) if measured else view["reason"],
        )
    return table


class _Showing(AbstractContextManager[object]):
    """The live table and a log handler, for as long as the block lasts."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._handler = _Handler(progress)

    def __enter__(self) -> object:
        log = logging.getLogger("fedsecure")
        self._level, self._propagate = log.level, log.propagate
        log.setLevel(logging.INFO)
        log.propagate = False  # a handler of the root logger would say everything twice, and to standard error
        log.addHandler(self._handler)
        if self._progress._live is not None:
            self._progress._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress._live is not None:
            self._progress._live.stop()
        log = logging.getLogger("fedsecure")
        log.removeHandler(self._handler)
        log.setLevel(self._level)
        log.propagate = self._propagate


class _Handler(logging.Handler):
    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            place = record.exc_info[2]
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            where = f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else ""
            text += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}{where}"
        fields = {"logger": record.name, **getattr(record, "fields", {})}
        self._progress.line(" ".join(text.split()), fields, record.levelname.lower())
