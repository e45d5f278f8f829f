"""Contributions and plans between domain objects and protobuf messages, checked before anything is allocated."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from fedsecure.errors import DataError, RemoteProtocolError
from fedsecure.schema import Contribution, Schema
from fedsecure.tensors import MAX_HEADER_BYTES, Header, Tensors, read_header
from fedsecure.wire.v1 import coordinator_pb2 as pb

__all__ = ["PROTOCOL", "Payload", "check_key", "decode_payload", "encode_contribution", "upload_key"]

#: Version of the wire protocol; a peer of another version is refused in Hello.
PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class Payload:
    """The exact bytes of a contribution: the safetensors form of the summed half, then that of the released half."""

    summed: bytes
    released: bytes

    @property
    def data(self) -> bytes:
        """Both halves, concatenated as they travel."""
        return self.summed + self.released

    def digest(self) -> str:
        """SHA-256 (hex) of ``data``: the identity of a release."""
        return hashlib.sha256(self.data).hexdigest()


def encode_contribution(contribution: Contribution) -> Payload:
    """Serialise; deterministic for equal contributions."""
    return Payload(contribution.summed.to_bytes(), contribution.released.to_bytes())


def upload_key(
    payload: Payload, *, node_id: str, plan_digest: str, round_: int, attempt: int, exchange: str
) -> pb.UploadKey:
    """The message that names a contribution and declares what it holds."""
    return pb.UploadKey(
        node_id=node_id,
        plan_digest=plan_digest,
        round=round_,
        attempt=attempt,
        exchange=exchange,
        payload_digest=payload.digest(),
        summed_bytes=len(payload.summed),
        released_bytes=len(payload.released),
        summed=_headers(read_header(payload.summed)),
        released=_headers(read_header(payload.released)),
    )


def check_key(key: pb.UploadKey, schema: Schema) -> None:
    """Refuse an upload by its header alone: wrong names, dtypes, shapes, or more bytes than the schema can need.

    Raises ``DataError`` naming the tensor, or ``RemoteProtocolError`` for a malformed header.
    """
    if len(key.payload_digest) != 64 or set(key.payload_digest) - set("0123456789abcdef"):
        raise RemoteProtocolError("upload header: payload_digest is not 64 lower-case hexadecimal digits")
    schema.check_headers(_header(key.summed), _header(key.released))
    limit = schema.max_nbytes + 2 * (MAX_HEADER_BYTES + 8)
    if key.summed_bytes + key.released_bytes > limit:
        declared = key.summed_bytes + key.released_bytes
        raise DataError(f"upload of {declared} bytes is larger than the schema allows ({limit} bytes)")


def decode_payload(data: bytes, key: pb.UploadKey, schema: Schema) -> Contribution:
    """Parse a complete payload: its digest, its headers against ``key`` and ``schema``, then its values.

    Raises ``RemoteProtocolError`` when the bytes are not those that ``key`` declares, ``DataError`` naming the tensor.
    """
    if len(data) != key.summed_bytes + key.released_bytes or hashlib.sha256(data).hexdigest() != key.payload_digest:
        raise RemoteProtocolError("upload: the bytes received are not those that its header declares")
    halves = Payload(data[: key.summed_bytes], data[key.summed_bytes :])
    for half, blob, declared in (("summed", halves.summed, key.summed), ("released", halves.released, key.released)):
        if read_header(blob) != _header(declared):
            raise RemoteProtocolError(f"upload: the {half} half does not hold the tensors that its header declares")
    check_key(key, schema)
    contribution = Contribution(Tensors.from_bytes(halves.summed), Tensors.from_bytes(halves.released))
    schema.check(contribution)
    return contribution


def _headers(header: Header) -> list[pb.TensorHeader]:
    return [pb.TensorHeader(name=n, dtype=dtype, shape=shape) for n, (dtype, shape) in header.items()]


def _header(messages: object) -> Header:
    header: Header = {}
    for message in messages:  # type: ignore[attr-defined]
        if message.name in header:
            raise RemoteProtocolError(f"upload header names tensor {message.name[:40]!r} twice")
        header[message.name] = (message.dtype, tuple(message.shape))
    return header
