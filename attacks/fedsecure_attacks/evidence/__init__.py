"""What a report shows beside its verdict: curves, how many people, the classes, who stood out, and who is nearest to
what was released. None of it holds a score of a single record."""

from fedsecure_attacks.evidence.gathering import Gathered, Shown, facts_alone, gather

__all__ = ["Gathered", "Shown", "facts_alone", "gather"]
