"""How a node holds off a coordinator that asks for what it refuses, again and again: pauses that grow, and no line of
the log twice in a row."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["FIRST_S", "LONGEST_S", "Refusals"]

#: The first pause, which doubles at every further refusal; and the longest (seconds). A node that has to be there for a
#: leg of 30 s misses it by the longest only, after five refusals without an answer in between.
FIRST_S, LONGEST_S = 1.0, 30.0


@dataclass(slots=True)
class _Refused:
    count: int
    line: str
    until_s: float


class Refusals:
    """Of each run, how often it was refused since something of it was last answered. ``monotonic``: time in seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._now = monotonic
        self._of: dict[str, _Refused] = {}

    def refused(self, plan: str, line: str) -> bool:
        """Something of the run was refused, for the reason ``line``: it rests for a while. Returns whether the reason
        is another one than the last time."""
        known = self._of.get(plan)
        count = 0 if known is None else known.count + 1
        self._of[plan] = _Refused(count, line, self._now() + min(FIRST_S * 2 ** min(count, 16), LONGEST_S))
        return known is None or known.line != line

    def answered(self, plan: str) -> None:
        """Something of the run was answered: the next refusal is a first one."""
        self._of.pop(plan, None)

    def rest_s(self, plan: str) -> float:
        """Seconds for which the run is not to be asked for yet; <= 0 when it may be."""
        known = self._of.get(plan)
        return 0.0 if known is None else known.until_s - self._now()
