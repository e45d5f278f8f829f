"""What must hold of a contribution before it may leave: the plan's schema and the institution's policy, on the exact
bytes."""

from __future__ import annotations

import numpy as np

from fedsecure.errors import DataError, PolicyError
from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure.plan.methods import CondensationSettings
from fedsecure.policy import Policy
from fedsecure.schema import Contribution, Schema
from fedsecure.tensors import Array
from fedsecure.wire.codec import Payload, decode_payload
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.log.masks import MaskedSum, leaving_bytes
from fedsecure_node.log.records import class_counts

__all__ = ["check_contribution"]


def check_contribution(
    plan: Plan,
    method: Method,
    key: pb.UploadKey,
    payload: Payload,
    counts: Array,
    policy: Policy,
    sent_before: int,
    *,
    records: int | None = None,
    masks: MaskedSum | None = None,
) -> Contribution:
    """Everything that must hold before bytes may be logged as a release, checked on the exact bytes.

    ``counts``: the node's records per class that take part under ``policy``, int64 (num_classes,); of a private plan
    with noise. ``sent_before``: bytes already released in this run. ``records``: of how many a contribution may say
    that it was made; left out, the sum of ``counts``. ``masks``: under which its summed half leaves, as longer vectors,
    which count in its place. Raises ``DataError`` naming the tensor, ``PolicyError`` naming the rule; then nothing is
    logged or sent.
    """
    policy.check_plan(plan)
    policy.check_records(int(counts.sum()))
    schema = method.schema(key.exchange)
    contribution = decode_payload(payload.data, key, schema)
    size = leaving_bytes(payload, masks)
    if size > policy.release.max_bytes:
        raise PolicyError(
            f"release.max_bytes: this release has {size} bytes (allowed: <= {policy.release.max_bytes})",
            hint="a smaller model or fewer images, or another limit in policy.toml",
        )
    if sent_before + size > policy.release.max_bytes_per_run:
        raise PolicyError(
            f"release.max_bytes_per_run: {sent_before} bytes left before, this release has {size}"
            f" (allowed: <= {policy.release.max_bytes_per_run} together)",
            hint="fewer rounds, or another limit in policy.toml",
        )
    if isinstance(plan.method, CondensationSettings):
        _check_condensed(plan, schema, contribution, counts, policy)
    _check_counted(schema, contribution, int(counts.sum()) if records is None else records)
    _check_logits(schema, contribution, policy)
    return contribution


def _check_counted(schema: Schema, contribution: Contribution, records: int) -> None:
    """A contribution that says how many records it was made from was made from no more than take part now: one that
    was computed before the floor of records per class was raised is not sent."""
    spec = schema.of_role("summed", "records")
    if spec is not None and int(contribution.summed[spec.name].sum()) > records:
        raise PolicyError(
            "plans.min_records_per_class: computed from more records than take part now",
            hint="the policy or the records changed after it was computed; it is not sent",
        )


def _check_condensed(plan: Plan, schema: Schema, contribution: Contribution, counts: Array, policy: Policy) -> None:
    """Images per class, and that classes below the floor of records show nowhere."""
    assert isinstance(plan.method, CondensationSettings)
    classes = plan.task.classes
    floor = max(policy.condensation.min_records_per_class, plan.method.min_count, policy.class_floor(plan))
    most = min(policy.condensation.max_ipc, plan.method.ipc)
    images = class_counts(contribution.released, schema, classes)
    if images is None and len(contribution.released):
        name = next(iter(contribution.released))
        raise DataError(f"tensor {name}: released without labels, so images per class cannot be checked")
    for index, (name, count) in enumerate((images or {}).items()):
        if count > most:
            raise PolicyError(f"condensation.max_ipc: {count} images of class {name!r} (allowed: <= {most})")
        if count and counts[index] < floor:
            raise PolicyError(
                f"condensation.min_records_per_class: class {name!r} is below the floor of {floor} records"
            )
    below = np.flatnonzero(counts < floor)
    for tensor, array in contribution.summed.items():
        if array.ndim and array.shape[0] == len(classes) and np.any(array[below]):
            first = next(i for i in below if np.any(array[i]))
            raise PolicyError(
                f"condensation.min_records_per_class: tensor {tensor} speaks of class {classes[first]!r},"
                f" which is below the floor of {floor} records"
            )


def _check_logits(schema: Schema, contribution: Contribution, policy: Policy) -> None:
    """``broadcast.max_abs_logit``, on the mean logits that the broadcast model gave on local records."""
    bound = policy.broadcast.max_abs_logit
    logits, weights = schema.of_role("summed", "logits"), schema.of_role("summed", "class_weight")
    if logits is None:
        return
    array = contribution.summed[logits.name]
    if weights is not None:  # sums are weighted by it, means are what is bounded
        array = array / np.maximum(contribution.summed[weights.name], 1)[:, None]
    if array.size and not float(np.abs(array).max()) <= bound:
        raise PolicyError(
            f"broadcast.max_abs_logit: tensor {logits.name} passes {bound:g} on local records",
            hint="a model of such outputs can be built to single a record out; nothing was sent",
        )
