"""Hashes and signatures of secure aggregation: known answers, separation of purposes, and faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedsecure.crypto.framing import length_prefixed
from fedsecure.crypto.secretbytes import fresh_secret, wipe
from fedsecure.crypto.signatures import SigningIdentity
from fedsecure.crypto.transcripts import check_signature, sign_payload, transcript_hash
from fedsecure.errors import SecAggError

OURS = json.loads((Path(__file__).parents[2] / "vectors" / "secagg_primitives.json").read_text())["schedule"]
KEY = Ed25519PrivateKey.from_private_bytes(bytes.fromhex("11" * 32))
IDENTITY = SigningIdentity(KEY)


def test_the_hash_is_that_of_the_label_and_the_framed_parts():
    vector = OURS["transcript"]
    parts = [bytes.fromhex(part) for part in vector["parts"]]
    assert transcript_hash(vector["label"], *parts).hex() == vector["digest"]


def test_no_two_labels_or_partitions_have_one_hash():
    hashes = [
        transcript_hash("u1"),
        transcript_hash("u2"),
        transcript_hash("u1", b""),
        transcript_hash("u1", b"", b""),
        transcript_hash("u1", b"ab", b"c"),
        transcript_hash("u1", b"a", b"bc"),
        transcript_hash("u1", b"abc"),
    ]
    assert len(set(hashes)) == len(hashes)
    assert {len(digest) for digest in hashes} == {32}


def test_a_signature_covers_protocol_label_and_payload():
    """Ed25519 itself is checked against RFC 8032 with the identity keys; here: over which bytes."""
    signature = sign_payload(IDENTITY, "advertise", b"payload")
    assert signature == KEY.sign(length_prefixed(b"fedsecure/secagg/v1/advertise", b"payload"))
    check_signature(IDENTITY.public_bytes, "advertise", b"payload", signature, "paris")


def test_a_signature_fails_for_another_label_payload_key_or_length():
    signature = sign_payload(IDENTITY, "advertise", b"payload")
    other = SigningIdentity(Ed25519PrivateKey.from_private_bytes(bytes.fromhex("22" * 32))).public_bytes
    own = IDENTITY.public_bytes
    for public, label, payload, given in (
        (own, "consistency", b"payload", signature),
        (own, "advertise", b"payloae", signature),
        (other, "advertise", b"payload", signature),
        (own, "advertise", b"payload", signature[:-1]),
        (own[:-1], "advertise", b"payload", signature),
        (own, "advertise", b"payload", IDENTITY.sign("advertise", b"payload")),
    ):
        with pytest.raises(SecAggError, match=f"^BAD_SIGNATURE: the {label} message of paris: ") as caught:
            check_signature(public, label, payload, given, "paris")
        assert caught.value.hint


@pytest.mark.parametrize("label", ["", "A", "a b", "a\n", "é", "/a", "a/b", "a" * 33])
def test_malformed_labels_are_refused(label):
    for call in (
        lambda: transcript_hash(label),
        lambda: sign_payload(IDENTITY, label, b""),
        lambda: check_signature(IDENTITY.public_bytes, label, b"", bytes(64), "paris"),
    ):
        with pytest.raises(ValueError, match="label"):
            call()


def test_secrets_are_fresh_and_can_be_wiped():
    one, other = fresh_secret(), fresh_secret()
    assert one != other
    assert len(one) == len(other) == 32
    wipe(one, other)
    assert one == other == bytes(32)
