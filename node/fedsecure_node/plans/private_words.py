"""What a plan's [privacy] computes with noise, what that proves of a record, and what it leaves out, in words."""

from __future__ import annotations

from collections.abc import Iterator

from fedsecure.plan import Plan
from fedsecure.plan.privacy import CondensationPrivacy, DPSGDSettings, ReleaseSettings

__all__ = ["guarantee_line", "private_words"]


def private_words(plan: Plan) -> Iterator[str]:
    """Lines on what is noised; none for a plan without [privacy]."""
    privacy = plan.privacy
    if privacy is None:
        return
    source = {
        "csprng": "from keys of the operating system, which nobody can repeat",
        "discrete": "whole numbers from keys of the operating system, which nobody can repeat",
        "torch": "from PyTorch's generator: whoever knows its seed takes it off again",
    }[privacy.noise]
    yield f"privacy: noise of sigma {privacy.sigma:g}, {source}"
    if isinstance(privacy, DPSGDSettings):
        yield (
            f"  in each of {privacy.steps} steps a round: on the sum of gradients, each record's clipped to"
            f" {privacy.clip:g}, over records drawn at random, {privacy.batch} on average"
        )
        if (shared := privacy.shared_noise(len(plan.cohort.nodes))) is not None:
            yield (
                f"  on mixing weights, every {privacy.mixing_every} rounds: {privacy.mixing_sigma:g} in the masked sum,"
                f" if {shared.words}; this node's own share of it is {shared.local_sigma(privacy.mixing_sigma):.3g}"
            )
    elif isinstance(privacy, ReleaseSettings):
        yield (
            f"  once a round and network ({privacy.networks} a round): on the sums of each class, each record's vector"
            f" clipped to 1 {_parts(privacy)}"
        )
    elif isinstance(privacy, CondensationPrivacy):
        yield (
            "  at every step: on the sums of a batch of each class, each record's vector clipped to 1"
            f" {_parts(privacy)}"
        )
    yield (
        f"  records are counted by class once, with noise of {privacy.count_sigma:g} records: by these counts it is"
        " decided which classes take part"
    )
    yield "  not protected: how many records there are in all, whether this node takes part, and how long it computes"


def _parts(privacy: CondensationPrivacy) -> str:
    return f"(features {privacy.feature_share:g}, logits {privacy.logit_share:.2g} of it)"


def guarantee_line(plan: Plan, cost: str) -> str:
    """What is proven of what leaves; ``cost``: what the whole plan would cost, where that is known."""
    if plan.privacy is None:
        return "guarantee: none - nothing is proven about what the released tensors tell of a single record"
    if plan.privacy.noise == "torch":
        return "guarantee: none is proven - heuristic: its noise can be repeated; it costs the budget all the same"
    follows = cost or "its epsilon follows from this node's records: fedsecure node dp-plan"
    return (
        "guarantee: differential privacy for each record, zero-out adjacency (a record counts, or contributes nothing);"
        f" {follows}"
    )
