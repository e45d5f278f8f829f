"""Sealed shares: RFC 8439's AEAD, our vector, and every way they fail to open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedsecure.crypto.sealedshares import SEALED_BYTES, SharePair, open_shares, seal_shares
from fedsecure.errors import SecAggError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "secagg_primitives.json").read_text())
OURS = VECTORS["schedule"]
KEY, T1 = bytes.fromhex(OURS["keys"]["share"]), bytes.fromhex(OURS["transcript"]["digest"])
SENDER, RECEIVER = OURS["participants"]
PLAINTEXT, SEALED = (bytes.fromhex(OURS["sealed"][name]) for name in ("plaintext", "ciphertext"))
PAIR = SharePair(PLAINTEXT[0], PLAINTEXT[1:34], PLAINTEXT[34:])


def opened(**changes) -> SharePair:
    given = {
        "key": KEY, "sealed": SEALED, "transcript": T1, "sender": SENDER, "receiver": RECEIVER, "index": 2, **changes
    }  # fmt: skip
    return open_shares(given.pop("key"), given.pop("sealed"), **given)


def test_the_aead_is_rfc_8439s():
    vector = {name: bytes.fromhex(value) for name, value in VECTORS["rfc8439_aead"].items()}
    plaintext = bytes.fromhex(VECTORS["sunscreen"])
    aead = ChaCha20Poly1305(vector["key"])
    assert aead.encrypt(vector["nonce"], plaintext, vector["associated"]) == vector["sealed"]


def test_our_vector_seals_and_opens():
    assert seal_shares(KEY, PAIR, transcript=T1, sender=SENDER, receiver=RECEIVER) == SEALED
    assert len(SEALED) == SEALED_BYTES == 83
    assert opened() == opened(key=bytearray(KEY)) == PAIR


@pytest.mark.parametrize(
    "changes",
    [
        {"key": bytes(32)},
        {"transcript": bytes(32)},
        {"sender": RECEIVER, "receiver": SENDER},
        {"sender": "rome"},
        {"receiver": "rome"},
        {"sender": SENDER + RECEIVER[0], "receiver": RECEIVER[1:]},
    ],
)
def test_another_key_session_or_pair_does_not_open(changes):
    with pytest.raises(SecAggError, match="^BAD_SHARE: the sealed shares from .* do not open") as caught:
        opened(**changes)
    assert caught.value.hint


@pytest.mark.parametrize("at", range(0, SEALED_BYTES, 6))
def test_any_changed_byte_is_seen(at):
    changed = bytearray(SEALED)
    changed[at] ^= 0x10
    with pytest.raises(SecAggError, match="do not open"):
        opened(sealed=bytes(changed))


@pytest.mark.parametrize("sealed", [b"", SEALED[:-1], SEALED + b"\0", bytes(16)])
def test_another_size_is_refused(sealed):
    with pytest.raises(SecAggError, match=f"^BAD_SHARE: .* have {len(sealed)} bytes, not 83"):
        opened(sealed=sealed)


def test_shares_of_another_index_are_refused():
    with pytest.raises(SecAggError, match="^BAD_SHARE: .* are those of index 2, not 3"):
        opened(index=3)


def test_pairs_that_are_none():
    for index in (0, 65, 256, -1):
        with pytest.raises(ValueError, match="share index"):
            SharePair(index, bytes(33), bytes(33))
    for one, other in ((32, 33), (33, 34)):
        with pytest.raises(ValueError, match="33 bytes"):
            SharePair(1, bytes(one), bytes(other))


def test_a_pair_does_not_show_its_shares():
    assert repr(PAIR) == "SharePair(index=2)"
