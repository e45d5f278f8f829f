"""What of a plan's sums is masked, and what the coordinator still learns, for the privacy officer who approves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedsecure.masked_plan import masked_limits
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.secagg.cohort.threshold import Threshold
from fedsecure.secagg.values.streams import Stream
from fedsecure.secagg.values.words import coordinator_learns, stream_words

__all__ = ["mask_lines", "masks_json", "sum_words"]

#: Exchange -> its streams, as ``fedsecure.masked_plan.masked_exchanges`` gives them.
Exchanges = Mapping[str, Sequence[Stream]]


def sum_words(plan: Plan, policy: Policy | None) -> str:
    """What the coordinator sees of a tensor that is to be summed, as the end of a sentence."""
    plain = "not masked, so the coordinator sees this node's own values, not only the cohort's sum"
    if plan.secagg == "off":
        return plain
    limits = masked_limits(plan)
    masked = f"inside a masked sum of at least {limits.least} of {limits.nodes} nodes; the coordinator sees that sum"
    if plan.secagg == "required" or _insists(policy):
        return masked
    return f"{masked} - or, in a run that starts without a manifest that all nodes signed, {plain}"


def mask_lines(plan: Plan, exchanges: Exchanges, policy: Policy | None) -> Iterator[str]:
    """Lines after the list of tensors; none for a plan with ``secagg`` "off"."""
    if plan.secagg == "off":
        return
    limits = masked_limits(plan)
    yield f"masks: {_when(plan, policy)}"
    yield (
        f"  cohort: {', '.join(plan.cohort.nodes)}; at least {limits.least} of these {limits.nodes} nodes must be "
        f"in a sum before it is unmasked, so {_dropouts(limits)}"
    )
    yield "  their identity keys: those of the manifest that this node trusts (fedsecure node cohort show)"
    if limits.is_small:
        yield f"  WARNING: a sum of {limits.least} nodes hides little of each; five nodes and more are advised"
    for exchange, streams in exchanges.items():
        size = sum(stream.spec.nbytes for stream in streams)
        yield f"  masked in exchange {exchange!r}, vectors of {size:,} bytes in place of the tensors:"
        yield from (f"  - {stream_words(stream)}" for stream in streams)
    yield "  the coordinator still learns:"
    every = [stream for streams in exchanges.values() for stream in streams]
    yield from (f"  - {line}" for line in coordinator_learns(plan.method.name, every, limits))


def masks_json(plan: Plan, exchanges: Exchanges) -> dict[str, Any]:
    """The same for programs: ``secagg`` alone when it is "off"."""
    if plan.secagg == "off":
        return {"secagg": "off"}
    limits = masked_limits(plan)
    every = [stream for streams in exchanges.values() for stream in streams]
    return {
        "secagg": plan.secagg,
        "nodes": list(plan.cohort.nodes),
        "threshold": limits.required,
        "least": limits.least,
        "dropouts": limits.dropouts,
        "colluders": limits.colluders,
        "exchanges": {exchange: [_stream(stream) for stream in streams] for exchange, streams in exchanges.items()},
        "coordinator_learns": list(coordinator_learns(plan.method.name, every, limits)),
    }


def _dropouts(limits: Threshold) -> str:
    return f"up to {limits.dropouts} may drop out" if limits.dropouts else "none may drop out"


def _insists(policy: Policy | None) -> bool:
    return policy is not None and policy.release.masks == "required"


def _when(plan: Plan, policy: Policy | None) -> str:
    if plan.secagg == "required":
        return "required - what is to be summed leaves only inside a masked sum"
    if _insists(policy):
        return "optional in the plan, required by this institution - it gives nothing to a run that is not masked"
    return "optional - decided as the run starts; release.masks in policy.toml can insist on it"


def _stream(stream: Stream) -> dict[str, Any]:
    spec = stream.spec
    return {
        "name": spec.name,
        "tensors": [place.name for place in stream.places],
        "length": spec.length,
        "ring_bits": spec.ring_bits,
        "frac_bits": spec.frac_bits,
        "clip_abs": spec.clip_abs,
        "max_count": spec.max_count,
    }
