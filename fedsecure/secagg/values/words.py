"""What a coordinator still learns of a masked exchange, in sentences for those who approve plans and read logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedsecure.secagg.cohort.threshold import Threshold
from fedsecure.secagg.values.noise import NoiseSpec
from fedsecure.secagg.values.streams import Stream

__all__ = ["NOT_DETECTED", "coordinator_learns", "noise_words", "own_rows", "stream_words"]

#: Tensors of a stream that are named in its line; the rest are counted.
NAMED = 6
#: Summed tensors with a row for each node that the others leave zero: the sum lays every node's own beside the others'.
OWN_ROWS = ("mass", "node_records", "responsibility")
#: The routing head that all train, row i of which node i's records alone pull up.
ROUTING_HEAD = ("shared.bias", "shared.xi")
#: FedAF's class statistics: non-holders of a class add zeros.
CLASS_SUMS = ("mean_logits", "soft_labels")
#: What no check of ours finds, whatever the method.
NOT_DETECTED = (
    "not detected: a coordinator that announces another sum than the nodes' (it spoils the model, and learns no more)",
    "not detected: a node whose values are made up, as long as they lie within their ranges",
)


def coordinator_learns(method_name: str, streams: Sequence[Stream], threshold: Threshold) -> tuple[str, ...]:
    """Sentences without a full stop, the most general first; empty where ``streams`` is, as nothing is then masked.

    ``method_name``: as plans name it. ``streams``: those of one exchange, or of all that a run has. ``threshold``: of
    the cohort in the manifest, with the fewest nodes of a sum by the plan.
    """
    if not streams:
        return ()
    return (*_of_every_method(threshold), *_of_tensors(streams), *_of_the_method(method_name), *NOT_DETECTED)


def stream_words(stream: Stream) -> str:
    """One stream as both sides derive it: name, elements, ring, f, B and the weights, and the tensors in it."""
    spec, names = stream.spec, [place.name for place in stream.places]
    rest = len(names) - NAMED
    tensors = ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
    counts = f", values times up to {spec.max_count} records" if spec.max_count > 1 else ""
    return (
        f"{spec.name}: {tensors} ({spec.length} elements of {spec.ring_bits} bits, the count of clipped values among "
        f"them; f = {spec.frac_bits}, B = {spec.clip_abs:g}{counts})"
    )


def noise_words(noise: NoiseSpec) -> str:
    """What the noise that a cohort shares takes away again from what is learned."""
    names = ", ".join(place.name for place in noise.stream.places)
    return (
        f"{names} only with noise of sigma {float(noise.sigma):g} or more, if at most {noise.colluders} of "
        f"{noise.nodes} nodes collude with the coordinator; else with this node's own share alone, which is "
        f"{noise.shares**-0.5:.2g} of that"
    )


def own_rows(streams: Sequence[Stream]) -> tuple[str, ...]:
    """The tensors in ``streams`` whose sum shows each node's own numbers, since no two nodes fill one row."""
    return tuple(place.name for stream in streams for place in stream.places if place.name in OWN_ROWS)


def _of_every_method(threshold: Threshold) -> Iterator[str]:
    n, least, colluders = threshold.nodes, threshold.least, threshold.colluders
    yield f"the exact sum over the nodes that were there to the end, at least {least} of {n}, and what follows from it"
    yield "which nodes were ready, which dropped out, and when; how many values were clipped, in all of them together"
    yield (
        "two rounds whose nodes differ by one: where values change little from round to round, the two sums differ by "
        "about what that node sent"
    )
    many = f"{colluders} node{'s collude' if colluders > 1 else ' colludes'}"
    yield (
        f"nothing more of one node, even if the coordinator deviates at will and {many} with it; with more no promise "
        f"holds, and with {n - 1} everything is known"
    )


def _of_tensors(streams: Sequence[Stream]) -> Iterator[str]:
    names = {place.name for stream in streams for place in stream.places}
    if rows := own_rows(streams):
        yield f"each node's own {', '.join(rows)}: every node fills a row of its own, so the sum hides nothing of it"
    if names.intersection(ROUTING_HEAD):
        yield (
            "much of each node's row of the routing head (bias and xi; gamma and xi in the paper): only that node's "
            "records pull its row up, so the sum barely hides it"
        )
    if names.intersection(CLASS_SUMS):
        yield "of a class that a single node holds, that node's own statistics: the others add zeros"


def _of_the_method(name: str) -> Iterator[str]:
    if name in ("fedaf", "feddm"):
        yield "every condensed image and label as it is: they are a union, not a sum, and no mask covers them"
