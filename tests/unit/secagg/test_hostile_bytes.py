"""Whatever bytes come, reading a message gives that message or a ``SecAggError``, quickly and in little memory."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from adversary import Lab, Relay
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsecure.errors import RemoteProtocolError, SecAggError
from fedsecure.secagg.protocol import messages
from fedsecure.secagg.protocol.messages import SessionConfig, SessionResult
from fedsecure.secagg.v1 import secagg_pb2 as pb

LAB = Lab(4)
RELAY = Relay(LAB, LAB.config(), LAB.cast(*LAB.names)).run()
REFUSALS = (SecAggError, RemoteProtocolError)
#: What reading one hostile message may take at most (bytes and seconds; the bytes are those of Python's allocator).
MOST_MEMORY, MOST_SECONDS = 8 << 20, 2.0


def payload(signed):
    return pb.Signed.FromString(signed).payload


RESULT = SessionResult(bytes(32), (bytes(32),) * 2, LAB.names, bytes(32), 1, "update").to_bytes()
#: reader -> a message that it reads.
READERS = {
    "config": (SessionConfig.from_bytes, RELAY.config),
    "signed": (lambda data: messages.open_signed(data, "advertise", LAB.manifest), RELAY.got["ada"][0]),
    "advertise": (messages.parse_advertise, payload(RELAY.got["ada"][0])),
    "key list": (messages.parse_key_list, RELAY.key_list()),
    "encrypted shares": (messages.parse_encrypted_shares, RELAY.got["ada"][1]),
    "inbox": (messages.parse_inbox, RELAY.inbox("ada")),
    "chunk": (messages.parse_masked_chunk, RELAY.got["ada"][2].pieces[0]),
    "done": (messages.parse_masked_done, payload(RELAY.got["ada"][2].done)),
    "survivors": (messages.parse_survivors, RELAY.survivors()),
    "consistency": (messages.parse_consistency, payload(RELAY.got["ada"][3])),
    "consistency set": (messages.parse_consistency_set, RELAY.consistency()),
    "unmask shares": (messages.parse_unmask_shares, RELAY.got["ada"][4]),
    "abort": (messages.parse_abort, messages.abort_bytes(SecAggError("BAD_KEY: no"), bytes(32))),
    "result": (messages.parse_result, RESULT),
}
every_reader = pytest.mark.parametrize("kind", READERS)


@every_reader
def test_the_genuine_message_is_read(kind):
    read, genuine = READERS[kind]
    assert read(genuine) is not None


@every_reader
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.binary(max_size=400))
def test_random_bytes(kind, data):
    refused_or_read(kind, data)


@every_reader
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(draw=st.data())
def test_mutated_messages(kind, draw):
    """Bytes changed, cut, put in, doubled, or taken from another kind of message."""
    data = bytearray(READERS[kind][1])
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, max(len(data) - 1, 0)))
        how = draw.draw(st.sampled_from(["flip", "cut", "insert", "double", "other", "tail"]))
        if how == "flip" and data:
            data[at] ^= draw.draw(st.integers(1, 255))
        elif how == "cut":
            del data[at:]
        elif how == "insert":
            data[at:at] = draw.draw(st.binary(min_size=1, max_size=12))
        elif how == "double":
            data += data[at:]
        elif how == "other":
            data += READERS[draw.draw(st.sampled_from(sorted(READERS)))][1][:200]
        else:
            del data[:at]
    refused_or_read(kind, bytes(data))


def refused_or_read(kind, data):
    read, genuine = READERS[kind]
    said = ""
    try:
        found = read(data)
    except REFUSALS as error:
        found, said = None, str(error)
    assert (found is None) == bool(said)
    assert "\n" not in said
    assert len(said) < 1000
    if not said:
        assert len(data) <= max(4 * len(genuine), 4096)


def many(kind, field, count, item):
    """``count`` copies of an item in a repeated field, built as bytes: what a hostile peer can send for the price."""
    number = kind.DESCRIPTOR.fields_by_name[field].number
    return (bytes([number << 3 | 2, len(item)]) + item) * count


BOMBS = {
    "config": [many(pb.SessionConfig, "streams", n, b"") for n in (17, 8_000, 1_000_000)],
    "key list": [many(pb.KeyList, "advertise", n, b"") for n in (65, 32_000, 1_000_000)],
    "encrypted shares": [many(pb.EncryptedShares, "ct", n, b"") for n in (65, 32_000, 1_000_000)],
    "inbox": [many(pb.Inbox, field, n, b"") for n in (65, 32_000, 1_000_000) for field in ("in", "u2")],
    "survivors": [many(pb.Survivors, field, n, b"") for n in (65, 32_000) for field in ("u3", "vector_digests")],
    "consistency set": [many(pb.ConsistencySet, "consistency", n, b"") for n in (65, 32_000, 1_000_000)],
    "unmask shares": [many(pb.UnmaskShares, "item", n, b"") for n in (65, 32_000, 1_000_000)],
    "done": [many(pb.MaskedDone, "stream_sha256", n, b"") for n in (17, 500, 1_000_000)],
    "result": [many(pb.Result, field, n, b"") for n in (65, 4_000, 1_000_000) for field in ("u3", "sum_sha256")],
    "chunk": [pb.MaskedChunk(transcript1=bytes(32), data=bytes(n)).SerializeToString() for n in (2**20 + 1, 2**24)],
    "signed": [pb.Signed(payload=bytes(2**24), signature=bytes(64), signer="ada").SerializeToString()],
    "advertise": [pb.Advertise(node_id="a" * 2**20).SerializeToString()],
    "abort": [pb.Abort(detail="x" * 2**20).SerializeToString()],
    "consistency": [pb.Consistency(transcript3=bytes(2**20)).SerializeToString()],
}


@pytest.mark.parametrize(("kind", "index"), [(k, i) for k, bombs in BOMBS.items() for i in range(len(bombs))])
def test_a_message_that_is_made_to_be_large(kind, index):
    data = BOMBS[kind][index]
    began = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(REFUSALS):
            READERS[kind][0](data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_MEMORY
    assert time.process_time() - began < MOST_SECONDS


@every_reader
def test_deep_nesting(kind):
    """Groups within groups: nothing may recurse through what a peer sends."""
    with pytest.raises(REFUSALS):
        READERS[kind][0](b"\x0b" * 500)
    with pytest.raises(REFUSALS):
        READERS[kind][0](b"\x7b" * 500 + b"\x7c" * 500)


@every_reader
@pytest.mark.parametrize("extra", [b"\xf8\x07\x01", b"\xfa\x07\x00", b"\x9a\x06\x01x"])
def test_fields_that_a_message_does_not_have(kind, extra):
    read, genuine = READERS[kind]
    with pytest.raises(REFUSALS):
        read(genuine + extra)


@pytest.mark.parametrize("kind", [k for k in READERS if k != "abort"])
def test_the_empty_message(kind):
    if kind in {"key list", "consistency set", "inbox", "survivors"}:  # empty lists, which the machines refuse
        READERS[kind][0](b"")
    else:
        with pytest.raises(REFUSALS):
            READERS[kind][0](b"")


def test_a_share_that_is_both():
    """``oneof``: the second value would silently replace the first; as bytes it is refused."""
    both = pb.Share(owner="ada", self_seed=bytes(33)).SerializeToString() + b"\x1a\x21" + bytes(33)
    data = b"\x0a\x20" + bytes(32) + b"\x12" + bytes([len(both)]) + both
    assert pb.UnmaskShares.FromString(data).item[0].WhichOneof("value") == "mask_sk"
    with pytest.raises(SecAggError, match="^BAD_SHARE: "):
        messages.parse_unmask_shares(data)


@pytest.mark.parametrize("order", ["twice", "reversed"])
def test_an_owner_twice(order):
    owners = {"twice": ["ada", "ada"], "reversed": ["bea", "ada"]}[order]
    items = [pb.Share(owner=owner, self_seed=bytes(33)) for owner in owners]
    data = pb.UnmaskShares(transcript3=bytes(32), item=items).SerializeToString()
    with pytest.raises(SecAggError, match="^BAD_SHARE: "):
        messages.parse_unmask_shares(data)
