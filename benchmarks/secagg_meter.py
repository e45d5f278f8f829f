"""Processor time and memory of the parties of a masked sum that run in one process. Standard library only.

Time is the process's own (user and system, of all its threads), so other work on the machine does not count, except
through shared caches. Memory is what ``tracemalloc`` sees: Python's objects and numpy's arrays, to the byte.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Meter", "serve"]

OUTSIDE = "outside"


@dataclass
class _Party:
    seconds: float = 0.0
    held: int = 0
    peak: int = 0


@dataclass
class Meter:
    """Charges time and memory to whoever is at work: parties nest, and the inner one's cost is not the outer one's.

    ``memory``: whether that is traced; from the beginning, or ``later``, from ``trace()`` on.
    """

    memory: bool = False
    later: bool = False
    parties: dict[str, _Party] = field(default_factory=lambda: {OUTSIDE: _Party()})

    def __post_init__(self) -> None:
        gc.collect()
        if self.memory and not self.later:
            tracemalloc.start()
        self._stack = [OUTSIDE]
        self._clock, self._bytes = time.process_time(), self._traced()[0]

    def trace(self) -> None:
        """Trace memory from here on, outside of any party's work."""
        if self.memory and not tracemalloc.is_tracing():
            tracemalloc.start()

    @contextmanager
    def working(self, party: str) -> Iterator[None]:
        """Everything inside is ``party``'s."""
        self._switch()
        self._stack.append(party)
        self.parties.setdefault(party, _Party())
        self._restart()
        try:
            yield
        finally:
            self._switch()
            self._stack.pop()
            self._restart()

    def hand_over(self, giver: str, taker: str, size: int) -> None:
        """``size`` bytes that ``giver`` allocated are ``taker``'s from now on: a message that arrived."""
        self.parties.setdefault(taker, _Party()).held += size
        self.parties[giver].held -= size

    def forget(self, party: str) -> None:
        """``party`` stands for another node from now on, which holds nothing yet."""
        self.parties.setdefault(party, _Party()).held = 0

    def seconds(self, *parties: str) -> float:
        """Processor seconds of ``parties`` together."""
        return sum(self.parties[party].seconds for party in parties if party in self.parties)

    def peak(self, *parties: str) -> int:
        """The most bytes that one of ``parties`` held at a time."""
        return max((self.parties[party].peak for party in parties if party in self.parties), default=0)

    def close(self) -> None:
        """Stop tracing."""
        tracemalloc.stop()

    def _traced(self) -> tuple[int, int]:
        return tracemalloc.get_traced_memory()  # (0, 0) while nothing is traced

    def _switch(self) -> None:
        now, (current, peak) = time.process_time(), self._traced()
        party = self.parties[self._stack[-1]]
        party.seconds += now - self._clock
        party.peak = max(party.peak, party.held + peak - self._bytes)
        party.held += current - self._bytes

    def _restart(self) -> None:
        if tracemalloc.is_tracing():
            tracemalloc.reset_peak()
        self._bytes, self._clock = self._traced()[0], time.process_time()


def serve(measure: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer one line of JSON on standard output for each on standard input, until that ends."""
    for line in sys.stdin:
        print(json.dumps(measure(json.loads(line))), flush=True)
