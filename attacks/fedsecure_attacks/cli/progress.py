"""What a person at a terminal sees while an audit computes: a line on stderr for each step, with about how long the
rest will take, by the steps that are over."""

from __future__ import annotations

import time
from collections.abc import Callable

from fedsecure.commands.output import note

__all__ = ["Parts", "Steps", "about", "minutes"]


def minutes(seconds: float | None) -> str:
    """``3 min``, ``20 s``; nothing where it is not known."""
    if seconds is None:
        return ""
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


def about(passed: float, done: int, of: int) -> str:
    """``; about 20 s left`` after ``done`` of ``of`` steps in ``passed`` seconds; nothing while nothing is over."""
    if not 0 < done < of:
        return ""
    return f"; about {minutes(passed / done * (of - done))} left"


class Steps:
    """Told when each of ``of`` steps begins. Steps count alike, so the time that is left is rough."""

    def __init__(self, of: int, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._of, self._quiet, self._clock = of, quiet, clock
        self._begun, self._since = 0, clock()

    def __call__(self, what: str) -> None:
        """Step ``what`` begins."""
        done, self._begun = self._begun, self._begun + 1
        of = max(self._of, self._begun)
        if not self._quiet:
            note(f"step {self._begun} of {of}: {what} …{about(self._clock() - self._since, done, of)}")


class Parts:
    """Told when ``done`` of ``of`` parts of something are over; several such may follow each other."""

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet, self._clock = quiet, clock
        self._since = clock()

    def __call__(self, what: str, done: int, of: int) -> None:
        """The part ``done`` of ``what`` is over."""
        now = self._clock()
        if not self._quiet:
            note(f"{what} {done} of {of}{about(now - self._since, done, of)}")
        if done >= of:
            self._since = now
