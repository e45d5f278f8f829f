"""What the log says of a release: every tensor with its range, the classes, where it goes, and who can learn what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsecure.errors import DataError
from fedsecure.plan import Plan
from fedsecure.privacy.labels import Guarantee
from fedsecure.schema import Contribution, Schema, TensorSpec
from fedsecure.tensors import Array, Tensors
from fedsecure.wire.codec import Payload
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.audited import Audited
from fedsecure_node.log.masks import MaskedSum, leaving

__all__ = ["Destination", "class_counts", "learns", "release_body", "tensor_rows"]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where bytes go: the address dialled and the fingerprint of the certificate that answered."""

    address: str
    certificate: str


def _number(value: Any) -> int | float:
    return int(value) if np.issubdtype(type(value), np.integer) or isinstance(value, bool | np.bool_) else float(value)


def _row(half: str, spec: TensorSpec, array: Array) -> dict[str, Any]:
    empty = array.size == 0
    return {
        "half": half,
        "name": spec.name,
        "role": spec.role,
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "bytes": array.nbytes,
        "min": None if empty else _number(array.min()),
        "max": None if empty else _number(array.max()),
    }


def tensor_rows(contribution: Contribution, schema: Schema) -> list[dict[str, Any]]:
    """One row a tensor: half, name, role, dtype, shape, bytes, least and greatest value (``None`` when empty)."""
    return [_row("summed", spec, contribution.summed[spec.name]) for spec in schema.summed] + [
        _row("released", spec, contribution.released[spec.name]) for spec in schema.released
    ]


def class_counts(released: Tensors, schema: Schema, classes: Sequence[str]) -> dict[str, int] | None:
    """Released images (or rows) of each class by name, or ``None`` when nothing labelled is released.

    Raises ``DataError`` naming the tensor when a label is no class of the plan.
    """
    spec = schema.of_role("released", "labels")
    if spec is None:
        return None
    labels = released[spec.name]
    if labels.size and (labels.min() < 0 or labels.max() >= len(classes)):
        raise DataError(
            f"tensor {spec.name}: labels {labels.min()}..{labels.max()} do not index {len(classes)} classes"
        )
    counts = np.bincount(labels, minlength=len(classes))
    return {label: int(count) for label, count in zip(classes, counts, strict=True)}


def _learn(spec: TensorSpec, half: str, masks: MaskedSum | None) -> str:
    if half == "released":
        how = "revealed to the coordinator as it is"
    elif masks is not None:
        how = f"leaves inside {masks.words} alone: the coordinator sees that sum"
    else:
        how = "meant to be known as a sum over the cohort, but not masked: the coordinator sees this node's own value"
    return f"{spec.name}: {spec.what}; {how}"


def learns(schema: Schema, masks: MaskedSum | None = None) -> list[str]:
    """What the coordinator can learn from one contribution, tensor by tensor, in words."""
    return [_learn(s, "summed", masks) for s in schema.summed] + [_learn(s, "released", masks) for s in schema.released]


def release_body(
    plan: Plan,
    key: ExchangeKey,
    payload: Payload,
    contribution: Contribution,
    schema: Schema,
    *,
    destination: Destination,
    policy_digest: str,
    guarantee: Guarantee,
    audited: Audited,
    class_floor: int,
    masks: MaskedSum | None = None,
    broadcast: str = "",
) -> Mapping[str, Any]:
    """The ``release`` record's own fields, derived from the exact bytes of the contribution; ``class_floor``: the
    policy's ``plans.min_records_per_class`` that it was checked against. Under ``masks``, ``payload`` is what leaves,
    without the summed half, and ``secagg`` says where that goes, and from which
    ``broadcast`` (SHA-256) it was made."""
    secagg = {} if masks is None else {"secagg": masks.to_json(payload, broadcast)}
    payload = leaving(payload, masks)
    return {
        "plan": {"digest": key.plan, "name": plan.name, "method": plan.method.name, "preset": plan.preset},
        "round": key.round,
        "step": key.step,
        "attempt": key.attempt,
        "exchange": key.exchange,
        "payload": {
            "sha256": payload.digest(),
            "bytes": len(payload.data),
            "summed_bytes": len(payload.summed),
            "released_bytes": len(payload.released),
        },
        "tensors": tensor_rows(contribution, schema),
        "class_counts": class_counts(contribution.released, schema, plan.task.classes),
        "destination": {"address": destination.address, "certificate": destination.certificate},
        "policy": policy_digest,
        "min_records_per_class": class_floor,
        "guarantee": guarantee.to_json(),
        "audit": audited.to_json(),
        "learns": learns(schema, masks),
        **secagg,
    }
