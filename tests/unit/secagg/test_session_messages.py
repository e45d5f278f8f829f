"""The messages of a session: what is written is read back, everything else is refused by name and before it costs."""

from __future__ import annotations

import os
from dataclasses import fields, replace

import pytest
from rehearsal import STREAMS, Rehearsal

from fedsecure.crypto.signatures import ephemeral_identity
from fedsecure.errors import ConfigError, SecAggError, StoreError
from fedsecure.secagg.protocol import messages
from fedsecure.secagg.protocol.messages import AbortCode, Advertisement, OwnerShare, SessionConfig, SessionResult
from fedsecure.secagg.v1 import secagg_pb2 as pb

REHEARSAL = Rehearsal(4)
CONFIG = REHEARSAL.config(prev_result=b"p" * 32, dp_digest=b"d" * 32)
DIGEST = bytes(range(32))
NODES = ("a", "b-1")
ADVERTISED = Advertisement(DIGEST, DIGEST, "a", b"s" * 32, b"m" * 32, b"c" * 32)
SEALED = {"a": bytes(83), "b-1": b"\1" * 83}
SHARES = {"a": OwnerShare("self_seed", bytes(33)), "b-1": OwnerShare("mask_sk", bytes(33))}
RESULT = SessionResult(DIGEST, (DIGEST, bytes(32)), NODES, DIGEST, 4, "update")

#: Reader, what it reads, what that is, and the code of its refusals.
READERS = {
    "config": (SessionConfig.from_bytes, CONFIG.to_bytes(), CONFIG, "BAD_CONFIG"),
    "advertise": (messages.parse_advertise, ADVERTISED.to_bytes(), ADVERTISED, "BAD_KEY"),
    "encrypted shares": (
        messages.parse_encrypted_shares,
        messages.encrypted_shares(DIGEST, SEALED),
        (DIGEST, SEALED),
        "BAD_SHARE",
    ),
    "inbox": (messages.parse_inbox, messages.inbox(SEALED, NODES), (SEALED, NODES), "BAD_SHARE"),
    "chunk": (
        messages.parse_masked_chunk,
        messages.masked_chunk(DIGEST, 2, 7, b"data"),
        messages.Chunk(DIGEST, 2, 7, b"data"),
        "BAD_VECTOR",
    ),
    "done": (
        messages.parse_masked_done,
        messages.masked_done(DIGEST, [DIGEST]),
        (DIGEST, (DIGEST,)),
        "BAD_VECTOR",
    ),
    "survivors": (
        messages.parse_survivors,
        messages.survivors(dict.fromkeys(NODES, DIGEST)),
        dict.fromkeys(NODES, DIGEST),
        "BAD_TRANSCRIPT",
    ),
    "consistency": (messages.parse_consistency, messages.consistency(DIGEST), DIGEST, "BAD_TRANSCRIPT"),
    "unmask shares": (
        messages.parse_unmask_shares,
        messages.unmask_shares(DIGEST, SHARES),
        (DIGEST, SHARES),
        "BAD_SHARE",
    ),
    "result": (messages.parse_result, RESULT.to_bytes(), RESULT, "BAD_TRANSCRIPT"),
}
every_message = pytest.mark.parametrize("kind", READERS)


@every_message
def test_what_is_written_is_read_back(kind):
    read, data, meant, _ = READERS[kind]
    assert read(data) == meant


@every_message
@pytest.mark.parametrize(
    "tail",
    [b"\x7a\x01x", b"\xff", b"\x0a", b"\x0a\x03abc"],
    ids=["another field", "no wire format", "cut short", "a field twice, or a wrong one"],
)
def test_what_a_type_has_not_is_refused(kind, tail):
    read, data, _, code = READERS[kind]
    with pytest.raises(SecAggError, match=rf"^{code}: "):
        read(data + tail)


@every_message
def test_too_large_is_refused_before_it_is_parsed(kind, monkeypatch):
    read, data, _, code = READERS[kind]
    with pytest.raises(SecAggError, match=rf"^{code}: .* bytes \(allowed: <= "):
        read(data + bytes(2 << 20))


def test_lists_of_signed_messages():
    identity = REHEARSAL.identities["n00"]
    signed = [messages.sign(identity, "advertise", bytes([i]), signer="n00") for i in range(3)]
    assert messages.parse_key_list(messages.key_list(signed)) == tuple(signed)
    assert messages.parse_consistency_set(messages.consistency_set(signed)) == tuple(signed)
    for read, write in (
        (messages.parse_key_list, messages.key_list),
        (messages.parse_consistency_set, messages.consistency_set),
    ):
        with pytest.raises(SecAggError, match="65 nodes"):
            read(write(signed[:1] * 65))


@pytest.mark.parametrize(
    ("nodes", "fault"),
    [
        (("b", "a"), "in order"),
        (("a", "a"), "a twice"),
        (("A",), "malformed"),
        (("",), "malformed"),
        (("a" * 64,), "malformed"),
        (("a\n",), "malformed"),
        (tuple(f"n{i:02}" for i in range(65)), "65 nodes"),
    ],
)
def test_a_set_of_nodes_has_one_encoding(nodes, fault):
    message = pb.Survivors(u3=nodes, vector_digests=[DIGEST] * len(nodes)).SerializeToString()
    with pytest.raises(SecAggError, match=rf"^BAD_TRANSCRIPT: .*{fault}"):
        messages.parse_survivors(message)


@pytest.mark.parametrize(
    ("read", "message", "code"),
    [
        (messages.parse_survivors, pb.Survivors(u3=["a"]), "BAD_TRANSCRIPT"),
        (messages.parse_survivors, pb.Survivors(u3=["a"], vector_digests=[b"short"]), "BAD_TRANSCRIPT"),
        (messages.parse_advertise, pb.Advertise(node_id="a"), "BAD_KEY"),
        (messages.parse_encrypted_shares, pb.EncryptedShares(transcript1=b"x"), "BAD_SHARE"),
        (
            messages.parse_encrypted_shares,
            pb.EncryptedShares(transcript1=DIGEST, ct=[pb.ShareCt(to="a", ct=bytes(84))]),
            "BAD_SHARE",
        ),
        (messages.parse_masked_chunk, pb.MaskedChunk(transcript1=DIGEST), "BAD_VECTOR"),
        (messages.parse_masked_done, pb.MaskedDone(transcript1=DIGEST), "BAD_VECTOR"),
        (messages.parse_masked_done, pb.MaskedDone(transcript1=DIGEST, stream_sha256=[DIGEST] * 17), "BAD_VECTOR"),
        (messages.parse_unmask_shares, pb.UnmaskShares(transcript3=DIGEST, item=[pb.Share(owner="a")]), "BAD_SHARE"),
        (
            messages.parse_unmask_shares,
            pb.UnmaskShares(transcript3=DIGEST, item=[pb.Share(owner="a", self_seed=bytes(32))]),
            "BAD_SHARE",
        ),
        (messages.parse_result, pb.Result(transcript3=DIGEST, next_state_digest=DIGEST), "BAD_TRANSCRIPT"),
    ],
)
def test_counts_and_sizes(read, message, code):
    with pytest.raises(SecAggError, match=rf"^{code}: "):
        read(message.SerializeToString())


def test_both_shares_of_a_node_in_one_message_are_refused():
    """The second of a oneof replaces the first for whoever reads leniently."""
    both = (
        pb.Share(owner="a", self_seed=bytes(33)).SerializeToString() + pb.Share(mask_sk=bytes(33)).SerializeToString()
    )
    assert pb.Share.FromString(both).WhichOneof("value") == "mask_sk"
    item = b"\x12" + bytes([len(both)]) + both
    with pytest.raises(SecAggError, match=r"^BAD_SHARE: .* twice"):
        messages.parse_unmask_shares(pb.UnmaskShares(transcript3=DIGEST).SerializeToString() + item)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("experiment", "AB" * 32),
        ("experiment", "ab" * 31),
        ("round", -1),
        ("round", 2**63),
        ("purpose", ""),
        ("purpose", "Up date"),
        ("purpose", "a" * 65),
        ("attempt", -1),
        ("attempt", 2**32),
        ("cohort_digest", b""),
        ("state_digest", bytes(31)),
        ("prev_result", bytes(33)),
        ("threshold", 2),
        ("threshold", 65),
        ("min_survivors", 2),
        ("min_survivors", 65),
        ("prg", 0),
        ("prg", 3),
        ("streams", ()),
        ("streams", (STREAMS[0].spec,) * 2),
        ("dp_digest", bytes(1)),
        ("nonce", bytes(16)),
        ("deadline_ms", 0),
        ("deadline_ms", 2**63),
    ],
)
def test_a_configuration_has_ranges(field, value):
    with pytest.raises(ConfigError, match=f"session configuration: {field}"):
        replace(CONFIG, **{field: value})


@pytest.mark.parametrize("field", ["length", "ring_bits", "frac_bits", "clip_abs", "weighting", "max_count", "name"])
def test_a_streams_numbers_are_checked_as_they_are_read(field):
    message = pb.SessionConfig.FromString(CONFIG.to_bytes())
    hostile = {"clip_abs": float("nan"), "weighting": 7, "name": "../x"}.get(field, 2**31 - 1)
    setattr(message.streams[0], field, 0 if field == "length" else hostile)
    with pytest.raises(SecAggError, match=r"^BAD_CONFIG: "):
        SessionConfig.from_bytes(message.SerializeToString())


def test_every_field_of_a_configuration_is_in_its_bytes():
    other = {
        "experiment": "cd" * 32,
        "round": 9,
        "purpose": "other",
        "attempt": 5,
        "cohort_digest": os.urandom(32),
        "state_digest": os.urandom(32),
        "prev_result": b"",
        "threshold": 4,
        "min_survivors": 64,
        "prg": messages.SessionConfig.from_bytes(CONFIG.to_bytes()).prg.__class__(2),
        "streams": CONFIG.streams[:1],
        "dp_digest": b"",
        "nonce": os.urandom(32),
        "deadline_ms": 5,
    }
    assert set(other) == {field.name for field in fields(SessionConfig)}
    base = replace(CONFIG, min_survivors=4)
    seen = {replace(base, **{name: value}).to_bytes() for name, value in other.items()}
    assert len(seen | {base.to_bytes()}) == len(other) + 1


def test_a_signature_is_by_the_node_it_names_for_one_purpose():
    manifest, identity = REHEARSAL.manifest, REHEARSAL.identities["n01"]
    data = messages.sign(identity, "advertise", b"payload", signer="n01")
    assert messages.open_signed(data, "advertise", manifest) == ("n01", b"payload")
    for wrong in (
        messages.sign(identity, "consistency", b"payload", signer="n01"),
        messages.sign(identity, "advertise", b"payload", signer="n02"),
        messages.sign(identity, "advertise", b"payload", signer="stranger"),
        messages.sign(identity, "advertise", b"payload", signer=""),
        messages.sign(ephemeral_identity(), "advertise", b"payload", signer="n01"),
        pb.Signed(payload=b"payload", signature=bytes(63), signer="n01").SerializeToString(),
        messages.sign(identity, "advertise", bytes(2000), signer="n01"),
    ):
        with pytest.raises(SecAggError, match=r"^BAD_SIGNATURE: "):
            messages.open_signed(wrong, "advertise", manifest)


def test_abort_codes_are_those_of_the_messages():
    wire = {v.name.removeprefix("ABORT_CODE_"): v.number for v in pb.AbortCode.DESCRIPTOR.values}
    assert wire == {code.name: int(code) for code in AbortCode}


@pytest.mark.parametrize("code", AbortCode)
def test_an_abort_carries_fixed_words_and_none_of_the_error(code):
    data = messages.abort_bytes(SecAggError(f"{code.name}: the secret is 42"), DIGEST)
    abort = messages.parse_abort(data)
    assert (abort.code, abort.transcript) == (code, DIGEST)
    assert b"42" not in data
    assert abort.detail


@pytest.mark.parametrize("code", AbortCode)
def test_only_shares_that_do_not_open_name_a_peer(code):
    """... and nobody is named but a node of the session, and not by itself."""
    abort = messages.parse_abort(messages.abort_bytes(SecAggError(f"{code.name}: no", peer="n01")))
    named = code is AbortCode.BAD_SHARE
    assert abort.peer == ("n01" if named else "")
    assert ("n01 or n02 is at fault" in abort.reason("n02", ("n01", "n02"))) is named
    for node, nodes in (("n01", ("n01", "n02")), ("n02", ("n02", "n03"))):
        assert abort.reason(node, nodes) == f"{code.name}: {abort.detail}"
    with pytest.raises(SecAggError, match=r"^BAD_TRANSCRIPT: an abort names a malformed node id"):
        messages.parse_abort(pb.Abort(code="ABORT_CODE_BAD_SHARE", peer="<b>").SerializeToString())


def test_what_is_no_code_is_unspecified():
    assert messages.code_of(SecAggError("something else")) is AbortCode.UNSPECIFIED
    assert messages.code_of(StoreError("BAD_KEY: the disk")) is AbortCode.UNSPECIFIED
    assert messages.code_of(SecAggError("TOO_FEW_SHARES: 2 of a")) is AbortCode.TOO_FEW_NODES
    unknown = pb.Abort(detail="<script>")
    unknown.code = 99
    assert messages.parse_abort(unknown.SerializeToString()).detail == "the session ended at this node"
    with pytest.raises(SecAggError, match=r"^BAD_TRANSCRIPT: "):
        messages.parse_abort(pb.Abort(transcript=b"x").SerializeToString())


def test_a_result_is_as_written_out(vectors):
    case = vectors["result"]
    sums = tuple(bytes.fromhex(digest) for digest in case["sum_sha256"])
    about = (bytes.fromhex(case["next_state_digest"]), case["round"], case["purpose"])
    result = SessionResult(bytes.fromhex(case["transcript3"]), sums, tuple(case["survivors"]), *about)
    assert result.to_bytes().hex() == case["bytes"]
    assert messages.parse_result(bytes.fromhex(case["bytes"])) == result
    assert messages.result_digest(result.to_bytes()).hex() == case["digest"]


@pytest.mark.parametrize("purpose", ["", "Update", "a/b", "x" * 65, "\N{DIGIT ONE}\n"])
def test_a_result_of_no_exchange(purpose):
    with pytest.raises(SecAggError, match="^BAD_TRANSCRIPT: a result names a malformed exchange"):
        messages.parse_result(replace(RESULT, purpose=purpose).to_bytes())


def test_a_result_is_named_by_its_bytes():
    data = RESULT.to_bytes()
    assert messages.result_digest(b"") == b""
    assert messages.result_digest(data) != messages.result_digest(replace(RESULT, survivors=("a",)).to_bytes())
    assert len(messages.result_digest(data)) == 32
