"""What a node accepts from its coordinator: checked before a single record is touched."""

from __future__ import annotations

import hashlib

import numpy as np

from fedsecure.errors import DataError, PolicyError, RemoteProtocolError
from fedsecure.policy import Policy
from fedsecure.schema import Contribution, Schema
from fedsecure.tensors import MAX_HEADER_BYTES, Tensors

__all__ = ["check_announced", "read_broadcast"]


def check_announced(size: int, schema: Schema, policy: Policy, what: str = "broadcast") -> None:
    """Refuse ``what`` by its announced size (bytes), before it is fetched.

    Raises ``PolicyError`` (``broadcast.max_bytes``) or ``RemoteProtocolError`` when the schema cannot need so much.
    """
    limit = policy.broadcast.max_bytes
    if size > limit:
        raise PolicyError(
            f"broadcast.max_bytes: the coordinator announces {size} bytes (allowed: <= {limit})",
            hint="raise the limit in policy.toml if the model is meant to be this large",
        )
    need = schema.max_nbytes + MAX_HEADER_BYTES + 8
    if size > need:
        raise RemoteProtocolError(
            f"{what} of {size} bytes is larger than the plan's schema can need ({need} bytes)",
            hint="the coordinator is at fault; ask its operator",
        )


def read_broadcast(data: bytes, digest: str, schema: Schema, policy: Policy, what: str = "broadcast") -> Tensors:
    """Parse a broadcast, or other tensors of the coordinator's (``what``), and check names, dtypes, shapes, ranges,
    finiteness and the policy's bound on parameters.

    Raises ``RemoteProtocolError`` naming the tensor (the coordinator is to blame) or ``PolicyError`` naming the rule.
    """
    if hashlib.sha256(data).hexdigest() != digest:
        raise RemoteProtocolError(f"{what}: the bytes received are not those that were announced")
    try:
        tensors = Tensors.from_bytes(data)
        schema.check(Contribution(released=tensors))
    except DataError as error:
        raise RemoteProtocolError(f"{what}: {error}", hint="the coordinator is at fault; no record was used") from None
    bound = policy.broadcast.max_abs_parameter
    for name, array in tensors.items():
        if array.dtype.kind == "f" and array.size:
            most = float(np.abs(array).max())
            if not most <= bound:
                raise PolicyError(
                    f"broadcast.max_abs_parameter: tensor {name} reaches {most:g} (allowed: <= {bound:g})",
                    hint="a model of such values can be built to single a record out; no record was used",
                )
    return tensors
