"""Uploads are refused by their header alone, and the bytes must be those that the header declares."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.errors import DataError, RemoteProtocolError
from fedsecure.schema import Axis, Contribution, Schema, TensorSpec
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import Payload, check_key, decode_payload, encode_contribution, upload_key
from fedsecure.wire.v1 import coordinator_pb2 as pb

SCHEMA = Schema(
    summed=(TensorSpec("s", "float64", (2,), -9, 9, "sum"),),
    released=(TensorSpec("y", "int64", (Axis("n", 0, 3),), 0, 9, "labels"),),
)


def made(y: list[int] | None = None) -> tuple[Payload, pb.UploadKey]:
    labels = np.array([1, 2] if y is None else y, np.int64)
    payload = encode_contribution(Contribution(Tensors({"s": np.ones(2)}), Tensors({"y": labels})))
    return payload, upload_key(payload, node_id="a", plan_digest="0" * 64, round_=0, attempt=0, exchange="e")


def test_round_trip() -> None:
    payload, key = made()
    check_key(key, SCHEMA)
    contribution = decode_payload(payload.data, key, SCHEMA)
    assert encode_contribution(contribution) == payload


def test_empty_halves_travel() -> None:
    payload = encode_contribution(Contribution())
    key = upload_key(payload, node_id="a", plan_digest="0" * 64, round_=0, attempt=0, exchange="e")
    assert decode_payload(payload.data, key, Schema()) == Contribution()


def test_a_header_that_the_schema_does_not_allow_is_refused_before_any_byte() -> None:
    _, key = made()
    key.released[0].shape[0] = 4
    with pytest.raises(DataError, match="tensor y: shape"):
        check_key(key, SCHEMA)
    _, key = made()
    key.released[0].dtype = "float32"
    with pytest.raises(DataError, match="tensor y: dtype"):
        check_key(key, SCHEMA)
    _, key = made()
    key.summed_bytes = 1 << 40
    with pytest.raises(DataError, match="larger than the schema allows"):
        check_key(key, SCHEMA)
    _, key = made()
    key.payload_digest = "../../etc/passwd"
    with pytest.raises(RemoteProtocolError, match="payload_digest"):
        check_key(key, SCHEMA)
    _, key = made()
    key.summed.append(key.summed[0])
    with pytest.raises(RemoteProtocolError, match="twice"):
        check_key(key, SCHEMA)


def test_other_bytes_than_declared_are_refused() -> None:
    payload, key = made()
    flipped = bytearray(payload.data)
    flipped[-1] ^= 1
    with pytest.raises(RemoteProtocolError, match="not those that its header declares"):
        decode_payload(bytes(flipped), key, SCHEMA)
    with pytest.raises(RemoteProtocolError, match="not those"):
        decode_payload(payload.data[:-1], key, SCHEMA)


def test_a_blob_with_other_tensors_than_declared_is_refused() -> None:
    payload, key = made()
    key.released[0].shape[0] = 3
    with pytest.raises(RemoteProtocolError, match="released half does not hold"):
        decode_payload(payload.data, key, SCHEMA)


def test_values_are_checked_last() -> None:
    payload, key = made([1, 10])
    check_key(key, SCHEMA)
    with pytest.raises(DataError, match="tensor y: values 1..10 outside 0..9"):
        decode_payload(payload.data, key, SCHEMA)
