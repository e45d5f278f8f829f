"""However an upload is cut, resumed and repeated, exactly its bytes are accepted, once."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsecure.errors import RemoteProtocolError
from fedsecure.schema import Contribution, Schema, TensorSpec
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution, upload_key
from fedsecure_coordinator.service.uploads import Uploads

SCHEMA = Schema((TensorSpec("x", "uint8", (300,), 0, 255, "bytes"),))


class Desk:
    """What uploads need of a desk: one open slot."""

    def __init__(self):
        self.taken = []

    def accepted(self, slot):
        return self.taken[0] if self.taken else None

    def schema(self, slot, payload_digest):
        return SCHEMA

    def accept(self, slot, payload, key):
        assert not self.taken
        self.taken.append(type("Kept", (), {"payload": None, "bytes": len(payload), "data": payload})())


class Cut(Exception):
    """The line broke."""


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(1, 200), max_size=12), wrong=st.integers(1, 50))
def test_any_cut(tmp_path_factory, seed, cuts, wrong):
    content = random.Random(seed).randbytes(300)
    payload = encode_contribution(Contribution(Tensors({"x": np.frombuffer(content, np.uint8)})))
    data = payload.data
    key = upload_key(payload, node_id="a", plan_digest="d" * 64, round_=0, attempt=0, exchange="one")
    desk = Desk()
    uploads = Uploads(tmp_path_factory.mktemp("partial"), desk)

    def pieces(offset, stop):
        yield data[offset:stop]
        if stop < len(data):
            raise Cut

    offset, complete = 0, False
    for cut in [*cuts, len(data)]:
        offset, complete = uploads.offset(key)
        if complete or offset == len(data):
            break
        with pytest.raises(RemoteProtocolError, match="continues at byte"):
            uploads.receive(key, offset + wrong, [b"x"])
        try:
            offset, complete = uploads.receive(key, offset, pieces(offset, min(offset + cut, len(data))))
        except Cut:
            continue
        if complete:
            desk.taken[0].payload = key.payload_digest
    assert complete
    assert uploads.receive(key, 0, []) == (len(data), True)
    assert desk.taken[0].data == data
