"""How many of a cohort must stand together before a sum is unmasked, and whom that withstands."""

from __future__ import annotations

from dataclasses import dataclass

from fedsecure.errors import ConfigError

__all__ = ["FEW_NODES", "MAX_NODES", "MIN_NODES", "Threshold"]

#: A sum over fewer than three tells one node's vector to the other.
MIN_NODES = 3
#: Below this a cohort is allowed, but a warning is due.
FEW_NODES = 5
#: The complete graph of pair masks is meant for up to this many.
MAX_NODES = 64


@dataclass(frozen=True, slots=True)
class Threshold:
    """Of ``nodes`` = N in the manifest (never of those who showed up), t = floor(2N/3) + 1 must sign and unmask.

    With n_c colluding nodes and a malicious coordinator, 2t > N + n_c makes it impossible that two lists of survivors,
    or two sessions of one purpose, both find t nodes; t - n_c >= 2 keeps two honest vectors in every sum.
    ``min_nodes``: the fewest of a sum by other rules, as a plan's, which may ask for more than t. Raises
    ``ConfigError`` unless 3 <= N <= 64.
    """

    nodes: int
    min_nodes: int = 0

    def __post_init__(self) -> None:
        if not MIN_NODES <= self.nodes <= MAX_NODES:
            raise ConfigError(
                f"secure aggregation: a cohort of {self.nodes} nodes (allowed: {MIN_NODES}..{MAX_NODES})",
                hint="with fewer than three, a sum hides nothing from its contributors"
                if self.nodes < MIN_NODES
                else "",
            )

    @property
    def required(self) -> int:
        """t, the nodes that must be there to the end."""
        return 2 * self.nodes // 3 + 1

    @property
    def least(self) -> int:
        """The fewest nodes whose sum is unmasked: t, or ``min_nodes`` where that is more."""
        return max(self.required, self.min_nodes)

    @property
    def dropouts(self) -> int:
        """N - ``least``, the nodes that may vanish before their vectors are there."""
        return max(self.nodes - self.least, 0)

    @property
    def colluders(self) -> int:
        """n_c, the nodes that may collude with a malicious coordinator: min(2t - N - 1, t - 2)."""
        return min(2 * self.required - self.nodes - 1, self.required - 2)

    @property
    def is_small(self) -> bool:
        """Whether N is so small that people should be warned."""
        return self.nodes < FEW_NODES
