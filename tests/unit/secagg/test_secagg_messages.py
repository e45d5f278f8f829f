"""The messages of secure aggregation: generated as checked in, without gRPC, and never both shares of a node in one."""

from __future__ import annotations

import subprocess
import sys

from fedsecure.crypto.keystream import Prg
from fedsecure.secagg.v1 import secagg_pb2
from fedsecure.secagg.values.spec import Weighting


def test_a_share_is_of_one_kind():
    share = secagg_pb2.Share(owner="a", self_seed=b"s")
    share.mask_sk = b"m"
    assert share.WhichOneof("value") == "mask_sk"
    assert share.self_seed == b""


def test_numbers_are_those_of_the_domain():
    assert {v.name.removeprefix("WEIGHTING_"): v.number for v in secagg_pb2.Weighting.DESCRIPTOR.values} == {
        w.name: int(w) for w in Weighting
    }


def test_the_messages_load_no_grpc():
    script = "import sys\nimport fedsecure.secagg.v1.secagg_pb2\nassert 'grpc' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=240)


def test_keystreams_have_one_number_everywhere():
    numbers = {v.name.removeprefix("KEYSTREAM_"): v.number for v in secagg_pb2.Keystream.DESCRIPTOR.values if v.number}
    assert numbers == {p.name: int(p) for p in Prg}
