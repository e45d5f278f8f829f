"""The population as an attacker learns it: class means, a whitening, and scores of people who are certainly out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedsecure_attacks.embedding import RIDGE, Embedding, Whitener
from fedsecure_attacks.records import Candidates, Images, Labelled, Labels
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["Frame", "ScoreClass", "by_class"]

#: Scores of a class are standardised by its own references when there are so many; else by those of all classes.
MIN_REFERENCES = 8
#: (class, embedded and centred records (n, D)) -> scores (n,).
ScoreClass = Callable[[int, Floats], Floats]


class PeopleOut(Protocol):
    """Whoever knows people who are certainly out."""

    @property
    def held_out(self) -> Mapping[int, Floats]:
        """Class -> (n, D), embedded and centred."""
        ...


@dataclass(frozen=True, eq=False)
class Frame:
    """One half of the references gives ``means`` (class -> (D,)) and ``whitener``; the other half, embedded and centred
    (``held_out``: class -> (n, D)), tells what scores people have who are out."""

    embed: Embedding
    means: Mapping[int, Floats] = field(repr=False)
    whitener: Whitener
    held_out: Mapping[int, Floats] = field(repr=False)

    @classmethod
    def of(cls, population: Labelled, embed: Embedding, *, share: float = RIDGE) -> Frame:
        """Every other record of each class goes to either half."""
        embedded, means, centred, held_out = embed(population.x), {}, [], {}
        for c in np.unique(population.y).tolist():
            rows = embedded[population.y == c]  # (n, D)
            fit = rows[::2] if len(rows) > 1 else rows
            means[c] = fit.mean(axis=0)
            centred.append(fit - means[c])
            held_out[c] = rows[1::2] - means[c]
        return cls(embed, means, Whitener.fit(np.concatenate(centred), share=share), held_out)

    def centred(self, x: Images, y: Labels) -> Floats:
        """phi(x) - mu of each record's class (n, D); rows of classes that the population lacks are left at zero."""
        embedded = self.embed(x)
        for c in np.unique(y).tolist():
            here = y == c
            embedded[here] = embedded[here] - self.means[c] if c in self.means else 0.0
        return embedded


def by_class(frame: PeopleOut, candidates: Candidates, centred: Floats, score: ScoreClass, able: set[int]) -> Floats:
    """Scores (n,) of all candidates, standardised class by class by people who are out, so that classes compare.

    Candidates of classes that are not ``able`` (nothing of them was released, or the population lacks them) get 0, the
    mean of people who are out.
    """
    found = np.zeros(len(candidates))
    null = {c: score(c, rows) for c, rows in frame.held_out.items() if c in able and len(rows)}
    everyone = np.concatenate(list(null.values())) if null else np.zeros(0)
    for c in sorted(able):
        here = candidates.y == c
        if not here.any():
            continue
        own = null.get(c, np.zeros(0))
        base = own if len(own) >= MIN_REFERENCES else everyone
        mean, spread = (float(base.mean()), float(base.std())) if len(base) > 1 else (0.0, 1.0)
        found[here] = (score(c, centred[here]) - mean) / (spread if spread > 0 else 1.0)
    return found
