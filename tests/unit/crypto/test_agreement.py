"""X25519: RFC 7748's vectors, agreement, and every public key that is refused."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest

from fedsecure.crypto.agreement import AgreementKey, check_public
from fedsecure.errors import LocalProtocolError, SecAggError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "secagg_primitives.json").read_text())
FIELD = 2**255 - 19


def le(value: int) -> bytes:
    return value.to_bytes(32, "little")


#: Every u-coordinate below 2^255 - 19 of a point of small order, on the curve or its twist.
SMALL_ORDER = [
    le(0),
    le(1),
    le(FIELD - 1),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


@pytest.mark.parametrize("vector", VECTORS["rfc7748_products"], ids=["first", "second"])
def test_products_are_rfc_7748s(vector):
    """Section 5.2. The second u-coordinate has its top bit set, which a public key of ours must not have: the bit is
    ignored by the product, so it is cleared here."""
    u = bytearray.fromhex(vector["u"])
    u[31] &= 0x7F
    key = AgreementKey(bytes.fromhex(vector["scalar"]))
    assert key.exchange(bytes(u), "peer").hex() == vector["product"]


def test_the_agreement_is_rfc_7748s():
    vector = VECTORS["rfc7748_agreement"]
    alice, bob = (AgreementKey(bytes.fromhex(vector[f"{name}_secret"])) for name in ("alice", "bob"))
    assert (alice.public.hex(), bob.public.hex()) == (vector["alice_public"], vector["bob_public"])
    assert alice.exchange(bob.public, "bob").hex() == vector["shared"]
    assert bob.exchange(alice.public, "alice").hex() == vector["shared"]


def test_fresh_keys_agree_and_differ():
    one, other, third = (AgreementKey.generate() for _ in range(3))
    assert one.exchange(other.public, "other") == other.exchange(one.public, "one")
    assert one.exchange(other.public, "other") != one.exchange(third.public, "third")
    assert len({one.public, other.public, third.public}) == 3


def test_a_key_rebuilt_from_its_secret_is_the_same_key():
    key = AgreementKey.generate()
    assert AgreementKey(key.secret_for_sharing()).public == key.public


@pytest.mark.parametrize("public", SMALL_ORDER, ids=["0", "1", "-1", "order 8", "order 8, other"])
def test_keys_of_small_order_are_refused(public):
    for attempt in (lambda: check_public(public, "paris"), lambda: AgreementKey.generate().exchange(public, "paris")):
        with pytest.raises(SecAggError, match="^BAD_KEY: the X25519 key of paris is of small order") as caught:
            attempt()
        assert caught.value.hint


@pytest.mark.parametrize(
    ("public", "fault"),
    [
        (b"", "has 0 bytes"),
        (bytes([9]) * 31, "has 31 bytes"),
        (bytes([9]) * 33, "has 33 bytes"),
        (le(FIELD), "not in canonical form"),
        (le(FIELD + 9), "not in canonical form"),
        (le(2**255 + 9), "not in canonical form"),
    ],
)
def test_other_malformed_keys_are_refused(public, fault):
    with pytest.raises(SecAggError, match=f"^BAD_KEY: .*{fault}"):
        check_public(public, "paris")


def test_good_keys_pass_the_check():
    check_public(AgreementKey.generate().public, "paris")
    check_public(le(9), "paris")


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_secret_has_32_bytes(size):
    with pytest.raises(ValueError, match="has 32 bytes"):
        AgreementKey(bytes(size))


def test_a_wiped_key_is_gone():
    key = AgreementKey.generate()
    held, public = key._secret, key.public
    key.wipe()
    key.wipe()
    assert held == bytes(32)
    assert key.public == public
    for use in (key.secret_for_sharing, lambda: key.exchange(le(9), "paris")):
        with pytest.raises(LocalProtocolError, match="wiped"):
            use()


def test_wiping_a_copy_leaves_the_key_and_the_other_way_round():
    given = bytearray(b"\x01" * 32)
    key = AgreementKey(given)
    given[:] = bytes(32)
    copied = key.secret_for_sharing()
    copied[:] = bytes(32)
    assert AgreementKey(key.secret_for_sharing()).public == key.public


def test_the_key_does_not_show_itself():
    key = AgreementKey(b"\x9d" * 32)
    assert repr(key) == f"AgreementKey(public {key.public.hex()[:16]}…)"
    assert "9d9d" not in f"{key!r}{key}"
    assert not hasattr(key, "__dict__")
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="does not leave"):
            leak(key)
