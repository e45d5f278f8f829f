"""Identity keys: RFC 8032's vectors, our framing's vectors, and every way a signature fails."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedsecure.crypto.keyfiles import write_secret
from fedsecure.crypto.signatures import (
    SigningIdentity,
    generate_identity,
    identity_fingerprint,
    load_identity,
    load_public_identity,
    public_identity_pem,
    signed_bytes,
    verify,
)
from fedsecure.errors import CertificateError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "identity_signatures.json").read_text())


def identity_of(secret: str) -> SigningIdentity:
    return SigningIdentity(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)))


def pem_of(key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize("vector", VECTORS["rfc8032"], ids=["TEST 1", "TEST 2", "TEST 3"])
def test_keys_and_the_raw_primitive_are_rfc_8032s(vector, tmp_path):
    write_secret(
        tmp_path / "identity.key", pem_of(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(vector["secret"])))
    )
    identity = load_identity(tmp_path / "identity.key")
    assert identity.public_bytes.hex() == vector["public"]
    assert identity._key.sign(bytes.fromhex(vector["message"])).hex() == vector["signature"]


@pytest.mark.parametrize("vector", VECTORS["framed"], ids=range(len(VECTORS["framed"])))
def test_signatures_cover_the_framed_label_and_payload(vector):
    identity, payload = identity_of(vector["secret"]), bytes.fromhex(vector["payload"])
    assert signed_bytes(vector["label"], payload).hex() == vector["signed"]
    assert identity.sign(vector["label"], payload).hex() == vector["signature"]
    verify(identity.public_bytes, vector["label"], payload, bytes.fromhex(vector["signature"]))


def test_generate_then_load(tmp_path):
    made = generate_identity(tmp_path / "identity.key")
    assert (tmp_path / "identity.key").stat().st_mode & 0o777 == 0o600
    loaded = load_identity(tmp_path / "identity.key")
    assert loaded.public_bytes == made.public_bytes
    verify(made.public_bytes, "a/v1", b"x", loaded.sign("a/v1", b"x"))
    with pytest.raises(CertificateError, match="exists already"):
        generate_identity(tmp_path / "identity.key")
    assert generate_identity(tmp_path / "second.key").public_bytes != made.public_bytes


def test_a_signature_fails_for_other_bytes_label_key_or_length():
    identity, other = identity_of("11" * 32), identity_of("22" * 32)
    good = identity.sign("a/v1", b"payload")
    verify(identity.public_bytes, "a/v1", b"payload", good)
    flipped = bytes([good[0] ^ 1]) + good[1:]
    for public, label, payload, signature in (
        (identity.public_bytes, "a/v1", b"payloae", good),
        (identity.public_bytes, "a/v2", b"payload", good),
        (other.public_bytes, "a/v1", b"payload", good),
        (identity.public_bytes, "a/v1", b"payload", flipped),
    ):
        with pytest.raises(CertificateError, match="is not by the key SHA256:"):
            verify(public, label, payload, signature)
    for signature in (b"", good[:-1], good + b"\0"):
        with pytest.raises(CertificateError, match="a signature has 64 bytes"):
            verify(identity.public_bytes, "a/v1", b"payload", signature)
    for public in (b"", identity.public_bytes[:-1], identity.public_bytes + b"\0"):
        with pytest.raises(CertificateError, match="an identity key has 32 bytes"):
            verify(public, "a/v1", b"payload", good)
    with pytest.raises(CertificateError):
        verify(b"\xff" * 32, "a/v1", b"payload", good)


@pytest.mark.parametrize("label", ["", "A", "a b", "a\n", "é", "/a", "a" * 65])
def test_malformed_labels_are_refused(label):
    with pytest.raises(ValueError, match="label"):
        identity_of("11" * 32).sign(label, b"")


def test_the_secret_does_not_show_itself():
    identity = identity_of("9d" * 32)
    assert repr(identity) == f"SigningIdentity({identity.fingerprint})"
    assert "9d9d" not in f"{identity!r}{identity}"
    assert not hasattr(identity, "__dict__")
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="does not leave"):
            leak(identity)


def test_key_files_that_are_not_ours(tmp_path):
    for content, fault in (
        (b"", "damaged"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "damaged"),
        (pem_of(ec.generate_private_key(ec.SECP256R1())), "not an Ed25519 one"),
    ):
        path = tmp_path / f"{len(content)}.key"
        write_secret(path, content)
        with pytest.raises(CertificateError, match=fault):
            load_identity(path)
    generate_identity(tmp_path / "identity.key").sign("a", b"")
    (tmp_path / "identity.key").chmod(0o644)
    with pytest.raises(CertificateError, match="mode 0644"):
        load_identity(tmp_path / "identity.key")


def test_public_key_file_round_trip(tmp_path):
    identity = identity_of("11" * 32)
    (tmp_path / "identity.pub").write_bytes(public_identity_pem(identity.public_bytes))
    assert load_public_identity(tmp_path / "identity.pub") == identity.public_bytes
    (tmp_path / "identity.pub").write_bytes(b"nothing")
    with pytest.raises(CertificateError, match="damaged"):
        load_public_identity(tmp_path / "identity.pub")


def test_fingerprint_form():
    text = identity_fingerprint(bytes(32))
    assert text.startswith("SHA256:66:68:7a:ad")
    assert len(text) == len("SHA256:") + 32 * 3 - 1
