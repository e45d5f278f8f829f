"""What a node answers: a prediction, or the error that says why there is none."""

from __future__ import annotations

from typing import Final, NoReturn

import numpy as np

from fedsecure import errors
from fedsecure.errors import DataError, FedSecureError, NodeUnreachable, RemoteProtocolError
from fedsecure.method import Prediction
from fedsecure.tensors import Array, Header, Tensors, read_header
from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = ["MAX_COMPONENTS", "decode_outcome", "encode_prediction", "encode_refusal"]

#: More mixture components than this are no answer.
MAX_COMPONENTS: Final = 1000
#: How far the sum of a row of probabilities may lie from one: float32 sums of thousands of terms stay well within.
SUM_TOLERANCE: Final = 1e-3
#: Longer messages and hints are cut (characters).
MAX_MESSAGE: Final = 800
MAX_HINT: Final = 200
#: What a node may refuse with, by class name. Its own troubles (a full disk …) are none of the analyst's business and
#: become ``NodeUnreachable``.
_REFUSALS: Final[dict[str, type[FedSecureError]]] = {
    name: getattr(errors, name)
    for name in (
        "CertificateError",
        "DataError",
        "NodeUnreachable",
        "PolicyError",
        "PrivacyBudgetExceeded",
        "RemoteProtocolError",
    )
}


def encode_prediction(node: str, digest: str, prediction: Prediction) -> pb.Outcome:
    """``node``'s prediction for the query of this ``digest``."""
    tensors = Tensors(
        {
            "components": np.asarray(prediction.components, dtype=np.float32),  # (n, C)
            "probabilities": np.asarray(prediction.probabilities, dtype=np.float32),  # (n, K)
        }
    )
    return pb.Outcome(prediction=pb.PredictionBody(node_id=node, query_digest=digest, tensors=tensors.to_bytes()))


def encode_refusal(error: FedSecureError) -> pb.Outcome:
    """``error`` as a refusal. An error that is the node's own affair keeps its text (paths, states) to itself."""
    name = type(error).__name__
    if name not in _REFUSALS:
        error = NodeUnreachable("the node cannot answer for a reason of its own, which its log names")
        name = type(error).__name__
    return pb.Outcome(
        refusal=pb.Refusal(error=name, message=str(error)[:MAX_MESSAGE], hint=error.hint[:MAX_HINT]),
    )


def decode_outcome(outcome: pb.Outcome, *, node: str, digest: str, records: int, classes: int) -> Prediction:
    """The prediction that ``node`` gives for the ``records`` of the query of this ``digest``.

    Raises the error that the node refused with, naming the node; ``RemoteProtocolError`` for an answer to another
    query or of another node, wrong names, shapes or dtypes, values that are not finite or no probabilities.
    """
    kind = outcome.WhichOneof("kind")
    if kind == "refusal":
        _refused(outcome.refusal, node)
    if kind != "prediction":
        raise RemoteProtocolError(f"node {node}: an answer that is neither a prediction nor a refusal")
    body = outcome.prediction
    if body.node_id != node:
        raise RemoteProtocolError(f"node {node}: an answer in the name of {body.node_id[:64]!r}")
    if body.query_digest != digest:
        raise RemoteProtocolError(
            f"node {node}: an answer to another query ({body.query_digest[:12]!r}, not {digest[:12]!r})"
        )
    try:
        _check_header(read_header(body.tensors), records, classes)
        tensors = Tensors.from_bytes(body.tensors)
        for name in ("probabilities", "components"):
            _check_rows(name, tensors[name])
    except DataError as error:
        raise RemoteProtocolError(f"node {node}: a malformed answer: {error}") from None
    return Prediction(tensors["probabilities"], tensors["components"])


def _refused(refusal: pb.Refusal, node: str) -> NoReturn:
    message, hint = (
        "".join(c if c.isprintable() else "?" for c in text[:limit])
        for text, limit in ((refusal.message, MAX_MESSAGE), (refusal.hint, MAX_HINT))
    )
    error = _REFUSALS.get(refusal.error)
    if error is None:
        raise RemoteProtocolError(f"node {node}: a refusal that is none of ours: {refusal.error[:40]!r}")
    raise error(f"node {node}: {message or 'refused without a reason'}", hint=hint)


def _check_header(header: Header, records: int, classes: int) -> None:
    if set(header) != {"probabilities", "components"}:
        raise DataError(f"tensors {sorted(header)[:4]} where probabilities and components are due")
    for name, low, high in (("probabilities", classes, classes), ("components", 1, MAX_COMPONENTS)):
        dtype, shape = header[name]
        if dtype != "float32" or len(shape) != 2 or shape[0] != records or not low <= shape[1] <= high:
            width = str(low) if low == high else f"{low}..{high}"
            raise DataError(f"tensor {name}: {dtype} {list(shape)} where float32 [{records}, {width}] is due")


def _check_rows(name: str, rows: Array) -> None:
    """``rows`` (n, m) are finite, in [0, 1], and each sums to one."""
    if not np.isfinite(rows).all():
        raise DataError(f"tensor {name}: values that are not finite")
    if (rows < 0).any() or (rows > 1 + SUM_TOLERANCE).any():
        raise DataError(f"tensor {name}: values outside 0..1")
    if (np.abs(rows.sum(axis=1, dtype=np.float64) - 1) > SUM_TOLERANCE).any():
        raise DataError(f"tensor {name}: rows that do not sum to one")
