"""Whom noise that a whole cohort adds together protects from: every node adds a share of it before its sum is masked.

The coordinator sees sums alone, and in each of them are the shares of t nodes or more. Of these, n_c may be told to it;
the rest is noise of the strength that is charged. Where more collude, one node's own share is all that is left for
sure. That is a promise about other institutions, so it is said wherever the epsilon is that rests on it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from fedsecure.secagg.cohort.threshold import Threshold

__all__ = ["SharedNoise"]

_MARK = re.compile(r"noise shared by (\d+) nodes, (\d+) colluding")


@dataclass(frozen=True, slots=True, order=True)
class SharedNoise:
    """Of a cohort of ``nodes`` = N, of whom ``colluders`` = n_c may tell the coordinator their shares. Raises
    ``ConfigError`` for what is no cohort, ``ValueError`` unless n_c is from 0 to N - 1."""

    nodes: int
    colluders: int

    def __post_init__(self) -> None:
        if not 0 <= self.colluders < Threshold(self.nodes).nodes:
            raise ValueError(f"privacy.colluders {self.colluders} of {self.nodes} nodes (allowed: 0..{self.nodes - 1})")

    @classmethod
    def of(cls, nodes: int, colluders: int | None) -> SharedNoise:
        """With as many colluders as the masks withstand where ``colluders`` does not say."""
        return cls(nodes, Threshold(nodes).colluders if colluders is None else colluders)

    @property
    def shares(self) -> int:
        """How many shares that nobody told are in any sum: t - n_c, or 1 where the masks do not withstand n_c."""
        threshold = Threshold(self.nodes)
        return threshold.required - self.colluders if self.colluders <= threshold.colluders else 1

    def local_sigma(self, sigma: float) -> float:
        """The noise multiplier of one node's share, where that of all that are not told is ``sigma``."""
        return sigma / math.sqrt(self.shares)

    @property
    def mark(self) -> str:
        """What a ledger's entry says of it; ``parse`` reads it."""
        return f"noise shared by {self.nodes} nodes, {self.colluders} colluding"

    @classmethod
    def parse(cls, text: str) -> SharedNoise | None:
        """What a text with its ``mark`` says; ``None`` where there is none."""
        found = _MARK.search(text)
        return cls(int(found[1]), int(found[2])) if found else None

    @property
    def words(self) -> str:
        """``at most 1 of 3 nodes colludes with the coordinator``."""
        return f"at most {self.colluders} of {self.nodes} nodes collude with the coordinator"
