"""How the daemon reports: a live view on a terminal, plain lines elsewhere, JSON lines on request. Never a record."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol, TextIO

from fedsecure_node.text import printable

__all__ = ["InTurn", "JsonReporter", "PlainReporter", "Reporter", "RichReporter", "last_words", "make_reporter"]

#: A plain log gets a line of progress at each of these parts of a computation.
PROGRESS_PARTS = 4


class Reporter(Protocol):
    """Where the daemon says what it does."""

    def say(self, event: str, text: str, **fields: Any) -> None:
        """One thing that happened: a short machine name, a line for people, and fields for machines."""
        ...

    def progress(self, label: str, done: int, of: int) -> None:
        """How far a computation is."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def last_words(form: str, grace: float) -> str:
    """The line of a log of format ``form`` for a node that does not end within ``grace`` seconds and is left as it
    is."""
    text = f"the node did not stop within {grace:g} s: its process is left at once; all that counts is in the store"
    if form == "json":
        return json.dumps({"time": _now(), "event": "left-at-once", "message": text})
    return f"{_now()} {text}"


class _LineReporter:
    """Writes lines; progress in quarters. A log that cannot be written (a full disk, a closed pipe) stops no run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: tuple[str, int] = ("", 0)

    def _write(self, line: str) -> None:
        with suppress(OSError):
            self._stream.write(line + "\n")
            self._stream.flush()

    def _another_part(self, label: str, done: int, of: int) -> bool:
        """Whether another quarter of a computation is done."""
        part = done * PROGRESS_PARTS // max(of, 1)
        new = (label, part) != self._last and part > 0
        if new:
            self._last = (label, part)
        return new

    def close(self) -> None:
        """Nothing to do."""


class PlainReporter(_LineReporter):
    """One line an event."""

    def say(self, event: str, text: str, **fields: Any) -> None:
        """``TIME text``."""
        self._write(f"{_now()} {printable(text)}")

    def progress(self, label: str, done: int, of: int) -> None:
        """A line each time another quarter is done."""
        if self._another_part(label, done, of):
            self.say("progress", f"{label}: {done} of {of}")


class JsonReporter(_LineReporter):
    """One JSON object a line: ``time``, ``event``, ``message`` and the event's fields."""

    def say(self, event: str, text: str, **fields: Any) -> None:
        """One line."""
        self._write(json.dumps({"time": _now(), "event": event, "message": text, **fields}, ensure_ascii=False))

    def progress(self, label: str, done: int, of: int) -> None:
        """A line each time another quarter is done."""
        if self._another_part(label, done, of):
            self.say("progress", label, done=done, of=of)


class RichReporter:
    """Lines that scroll and one bar that stays, on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(file=stream, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task: Any = None
        self._label = ""
        self._bar.start()

    def say(self, event: str, text: str, **fields: Any) -> None:
        """A line above the bar; ends the bar, since something new happens."""
        from rich.text import Text

        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task, self._label = None, ""
        with suppress(OSError):  # the terminal may have gone
            self._console.print(Text(f"{_now()[11:19]} {printable(text)}"), soft_wrap=True)

    def progress(self, label: str, done: int, of: int) -> None:
        """Move the bar."""
        if self._task is None or label != self._label:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task, self._label = self._bar.add_task(printable(label).replace("[", "("), total=of), label
        self._bar.update(self._task, completed=done, total=of)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()


class InTurn:
    """A reporter that several threads use: each says its line alone."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._turn = threading.Lock()

    def say(self, event: str, text: str, **fields: Any) -> None:
        """As the reporter says it."""
        with self._turn:
            self._reporter.say(event, text, **fields)

    def progress(self, label: str, done: int, of: int) -> None:
        """As the reporter shows it."""
        with self._turn:
            self._reporter.progress(label, done, of)

    def close(self) -> None:
        """Close the reporter."""
        with self._turn:
            self._reporter.close()


def make_reporter(form: str, stream: TextIO | None = None) -> Reporter:
    """``plain``, ``json``, or ``auto``: the live view when ``stream`` (stderr by default) is a terminal."""
    out = stream if stream is not None else sys.stderr
    if form == "json":
        return JsonReporter(out)
    if form == "auto" and out.isatty():
        return RichReporter(out)
    return PlainReporter(out)
