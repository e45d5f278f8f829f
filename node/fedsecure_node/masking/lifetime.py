"""How long a session and its keys live here: until the deadline by the coordinator's clock, but never longer than its
legs can take by this machine's own.

The deadline alone would not do: a coordinator that means harm names one that is days away, or shifts its clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fedsecure.secagg.machines.due import LONGEST_MS
from fedsecure_node.link.client import SLOWEST_LINE

__all__ = ["LEGS_S", "Lifetime", "longest_s"]

#: What the four legs after the first take at most beside the masked vectors: an hour each, which is the most that a
#: coordinator can be set to, and their messages (seconds).
LEGS_S = 4 * 3610.0


def longest_s(exchange_s: float, nbytes: int, nodes: int) -> float:
    """Seconds that a session may take, by the plan: the first leg as long as an exchange (``exchange_s``); the others
    ``LEGS_S``, and the vectors of ``nbytes`` each, of all ``nodes`` one after another over the slowest line."""
    return min(exchange_s + LEGS_S + nodes * nbytes / SLOWEST_LINE, LONGEST_MS / 1000)


class Lifetime:
    """The time of a session that begins now and takes no longer than ``longest_s`` (seconds).

    ``coordinator_ms``: Unix time (ms) by the coordinator's clock. ``monotonic``: seconds by this machine's own.
    """

    def __init__(
        self, longest_s: float, coordinator_ms: Callable[[], int], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._longest_s, self._coordinator_ms, self._monotonic = longest_s, coordinator_ms, monotonic
        self._began_ms, self._began_s = coordinator_ms(), monotonic()

    def now_ms(self) -> int:
        """Unix time (ms) by the coordinator's clock as it was at the beginning, and this machine's since; or by the
        coordinator's, if that is ahead. So it never runs slower than this machine's."""
        return max(self._began_ms + int(1000 * self._passed_s()), self._coordinator_ms())

    def left_s(self, deadline_ms: int | None) -> float:
        """Seconds until the session is over, <= 0 when it is: at ``deadline_ms`` (Unix time; ``None``: it has none
        yet), or after the longest that it may take."""
        left = self._longest_s - self._passed_s()
        return left if deadline_ms is None else min(left, (deadline_ms - self.now_ms()) / 1000)

    def _passed_s(self) -> float:
        return self._monotonic() - self._began_s
