"""Whether what a plan sums can be masked, in which streams, and with which noise: asked wherever a plan is checked.

Of a run with noise in shares, nodes and coordinator ask the same function for the streams of a round, so that both find
the same fractional bits and the same ``dp_digest``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from fedsecure.method import Disclosed
from fedsecure.plan import Plan
from fedsecure.plan.privacy import DPSGDSettings
from fedsecure.secagg.cohort.threshold import Threshold
from fedsecure.secagg.values.masked import check_masked
from fedsecure.secagg.values.noise import NoiseSpec, fit_noise
from fedsecure.secagg.values.streams import Stream

__all__ = ["MASS", "masked_exchanges", "masked_limits", "noised_streams"]

#: The summed tensor that is linear in records: FedSPM's responsibilities, of which each record adds a vector of a
#: norm of at most 1 to its node's row.
MASS = "mass"


def masked_exchanges(plan: Plan, method: Disclosed) -> dict[str, tuple[Stream, ...]]:
    """Exchange -> the streams of its summed half, for every exchange that sums anything; empty with ``secagg`` "off".

    Raises ``ConfigError`` naming the tensor when its sum over the cohort fits no ring, or the cohort when it cannot be
    masked.
    """
    if plan.secagg == "off":
        return {}
    schemas = {exchange: method.schema(exchange) for exchange in method.exchanges}
    cohort = plan.cohort
    found = check_masked(schemas, method=plan.method.name, nodes=cohort.nodes, min_nodes=cohort.min_nodes)
    for streams in found.values():
        noised_streams(plan, 0, streams)  # that there is room for it
    return {exchange: streams for exchange, streams in found.items() if streams}


def masked_limits(plan: Plan) -> Threshold:
    """How many of the nodes that a plan names a masked sum needs: t, or ``cohort.min_nodes`` where that is more. Raises
    ``ConfigError`` when they are no cohort."""
    return Threshold(len(set(plan.cohort.nodes)), plan.cohort.min_nodes)


def noised_streams(
    plan: Plan, round_: int, streams: Sequence[Stream]
) -> tuple[tuple[Stream, ...], tuple[NoiseSpec, ...]]:
    """The ``streams`` of an exchange as they are summed in round ``round_`` (from 0), and the noise that every node
    adds to its vectors of some; with noise there may be fewer fractional bits. None unless the plan asks for it.

    Mixing weights are summed in rounds 0, ``mixing_every``, …; in between nodes send zeros, which need no noise. Raises
    ``ConfigError`` naming the stream that its noise does not fit.
    """
    privacy, nodes = plan.privacy, len(set(plan.cohort.nodes))
    shared = privacy.shared_noise(nodes) if isinstance(privacy, DPSGDSettings) else None
    if shared is None or not isinstance(privacy, DPSGDSettings) or round_ % privacy.mixing_every:
        return tuple(streams), ()
    noises = {
        stream.spec.name: fit_noise(
            stream,
            record_clip=Fraction(1),
            sigma=Fraction(privacy.mixing_sigma),
            nodes=nodes,
            colluders=shared.colluders,
        )
        for stream in streams
        if [place.name for place in stream.places] == [MASS]
    }
    found = tuple(noises[s.spec.name].stream if s.spec.name in noises else s for s in streams)
    return found, tuple(noises.values())
