"""Many tests in one report: Holm's procedure (1979), which keeps the chance of any false finding below alpha."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["holm"]


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p-values, in the order given: a test is significant at alpha when its adjusted p is below it."""
    ordered = sorted(p.items(), key=lambda item: item[1])
    adjusted: dict[str, float] = {}
    worst = 0.0
    for rank, (name, value) in enumerate(ordered):
        worst = max(worst, min(1.0, (len(ordered) - rank) * value))
        adjusted[name] = worst
    return {name: adjusted[name] for name in p}
