"""What the coordinator's and another node's attacks say of each federated shadow, the others being its references."""

from __future__ import annotations

from collections.abc import Sequence

from fedsecure_attacks.federated.shadows import FederatedShadow
from fedsecure_attacks.images.logits import LogitsFrame, difference_tracing, mean_logit_tracing, soft_label_tracing
from fedsecure_attacks.images.tracing import RoundsFrame, multi_round
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["coordinator_attacks", "other_node_attacks"]


def coordinator_attacks(
    target: int,
    shadows: Sequence[FederatedShadow],
    population: Labelled,
    candidates: Candidates,
    disjoint: Sequence[FederatedShadow] = (),
) -> dict[str, Floats]:
    """T3: scores (n,) by attack on ``shadows[target]``. ``disjoint``: runs of people who are no candidates; with some,
    there is the second of the three centrings, too."""
    seen = shadows[target].observation(population)
    rounds = RoundsFrame.of(seen)
    logits = LogitsFrame.of(seen.plan, [r.w for r in seen.rounds], population)
    found = {
        "mean-tracing-rounds": multi_round(seen, candidates, rounds),
        "mean-tracing-rounds-references": multi_round(
            seen, candidates, rounds, [_sets(s) for i, s in enumerate(shadows) if i != target]
        ),
        "mean-logits": mean_logit_tracing(seen, candidates, logits),
        "mean-logits-pool": mean_logit_tracing(seen, candidates, logits, knows_pool=True),
        "soft-labels": soft_label_tracing(seen, candidates),
    }
    if disjoint:
        found["mean-tracing-rounds-disjoint"] = multi_round(seen, candidates, rounds, [_sets(s) for s in disjoint])
    return found


def other_node_attacks(shadow: FederatedShadow, others: Labelled, candidates: Candidates) -> dict[str, Floats]:
    """T2: scores (n,) of the first other node. ``others``: as the shadow was made with."""
    return {"mean-logits-other-node": difference_tracing(shadow.other_node(others), candidates)}


def _sets(shadow: FederatedShadow) -> list[Labelled | None]:
    return [r.released for r in shadow.rounds]
