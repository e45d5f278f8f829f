"""Sealed messages open for their key and purpose and for nothing else; the key does not show itself."""

from __future__ import annotations

import copy
import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.crypto.sealing import PUBLIC_BYTES, SEAL_OVERHEAD, SealingKey, seal
from fedsecure.errors import RemoteProtocolError

#: RFC 9180, appendix A.2.1: the recipient key of this suite's vectors.
RFC_SECRET = "8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb"


@given(plaintext=st.binary(max_size=2000), info=st.binary(max_size=100))
@settings(max_examples=25, deadline=None)
def test_what_is_sealed_opens(plaintext, info):
    key = SealingKey.generate()
    sealed = seal(key.public, plaintext, info)
    assert len(sealed) == len(plaintext) + SEAL_OVERHEAD
    assert len(plaintext) < 16 or plaintext not in sealed
    assert key.open(sealed, info) == plaintext


def test_no_two_seals_are_alike():
    key = SealingKey.generate()
    assert seal(key.public, b"x", b"i") != seal(key.public, b"x", b"i")


@given(at=st.integers(0, SEAL_OVERHEAD + 9), bit=st.integers(0, 7))
@settings(max_examples=40, deadline=None)
def test_any_flipped_bit_is_seen(at, bit):
    if (at, bit) == (31, 7):
        return  # the one bit of an X25519 public key that its decoding masks (RFC 7748, section 5)
    key = SealingKey.generate()
    sealed = bytearray(seal(key.public, b"0123456789", b"i"))
    sealed[at] ^= 1 << bit
    with pytest.raises(RemoteProtocolError, match="does not open"):
        key.open(bytes(sealed), b"i")


def test_another_key_purpose_or_length_does_not_open():
    key, other = SealingKey.generate(), SealingKey.generate()
    sealed = seal(key.public, b"secret", b"query")
    for opener, data, info in (
        (other, sealed, b"query"),
        (key, sealed, b"answer"),
        (key, sealed[:-1], b"query"),
        (key, sealed + b"\0", b"query"),
        (key, sealed[:PUBLIC_BYTES], b"query"),
        (key, b"", b"query"),
        (key, bytes(PUBLIC_BYTES) + sealed[PUBLIC_BYTES:], b"query"),
    ):
        with pytest.raises(RemoteProtocolError, match="does not open") as caught:
            opener.open(data, info)
        assert "\n" not in str(caught.value)
        assert caught.value.hint


@pytest.mark.parametrize("public", [b"", bytes(31), bytes(33), bytes(32)], ids=["none", "short", "long", "low order"])
def test_keys_that_are_none(public):
    with pytest.raises(RemoteProtocolError, match="malformed"):
        seal(public, b"x", b"i")


def test_the_key_does_not_show_itself():
    raw = bytes.fromhex(RFC_SECRET)
    key = SealingKey(X25519PrivateKey.from_private_bytes(raw))
    assert repr(key) == f"SealingKey(public {key.public.hex()[:16]}…)"
    assert not hasattr(key, "__dict__")
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="does not leave"):
            leak(key)
