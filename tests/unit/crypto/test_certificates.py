"""Every fault of a certificate is named as what it is."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedsecure.crypto.certificates import (
    PeerIdentity,
    certificate_hosts,
    certificate_identity,
    certificate_names,
    check_ca,
    check_certificate,
    fingerprint,
    when,
)
from fedsecure.errors import CertificateError

SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


def refused(consortium, pem: bytes, fault: str, **changes) -> CertificateError:
    with pytest.raises(CertificateError, match=fault) as caught:
        consortium.check(pem, **changes)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_good_certificate_of_each_role(consortium):
    for role, name, hosts in (
        ("node", "charite", ()),
        ("analyst", "charite", ()),
        ("coordinator", "coordinator", ("localhost", "c.example.org", "127.0.0.1", "::1")),
        ("node", "coordinator", ()),  # a name is no role
    ):
        pem = consortium.issue(role, name, hosts)
        peer = consortium.check(pem, role=role, name=name, crl_pem=consortium.crl_pem)
        assert (peer.federation, peer.role, peer.name) == ("heart", role, name)
        assert peer.fingerprint == fingerprint(pem)
        assert peer.not_after == consortium.now + timedelta(days=90)
        assert certificate_hosts(pem) == hosts
        assert certificate_names(pem)[1:] == hosts


def test_any_of_several_roles_will_do(consortium):
    assert consortium.check(consortium.issue("analyst", "a"), role=("node", "analyst")).role == "analyst"
    refused(consortium, consortium.issue("coordinator", "coordinator", ("c",)), "wrong role", role=("node", "analyst"))


def test_the_profile_of_a_leaf(consortium, usages):
    for role, hosts in (("node", ()), ("coordinator", ("c.example.org", "10.0.0.1"))):
        leaf = x509.load_pem_x509_certificate(consortium.issue(role, "coordinator", hosts))
        assert not len(leaf.subject)
        assert leaf.serial_number.bit_length() <= 159
        san = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        assert san.critical
        assert list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [usages[role]]
        assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert isinstance(leaf.public_key(), ec.EllipticCurvePublicKey)
    assert san.value.get_values_for_type(x509.DNSName) == ["c.example.org"]
    assert san.value.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.1")]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_agrees_in_strict_mode(consortium, tmp_path):
    for role, hosts, purpose in (("node", (), "sslclient"), ("coordinator", ("c",), "sslserver")):
        (tmp_path / "leaf").write_bytes(consortium.issue(role, "coordinator", hosts))
        done = subprocess.run(
            [
                "openssl", "verify", "-x509_strict", "-check_ss_sig", "-crl_check", "-purpose", purpose,
                "-attime", str(int(consortium.now.timestamp())), "-CAfile", str(consortium.ca / "ca.crt"),
                "-CRLfile", str(consortium.ca / "crl.pem"), str(tmp_path / "leaf"),
            ],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def test_unknown_ca(consortium, another_consortium):
    error = refused(consortium, another_consortium.issue(), "unknown CA: issued by 'heart consortium CA', not by")
    assert fingerprint(consortium.ca_pem) in str(error)


def test_self_signed(consortium):
    key = ec.generate_private_key(ec.SECP256R1())
    empty = x509.Name([])
    builder = x509.CertificateBuilder().subject_name(empty).issuer_name(empty).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(consortium.now).not_valid_after(consortium.now)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    refused(consortium, pem, "unknown CA: issued by itself")


def test_a_changed_certificate_is_of_an_unknown_ca(consortium):
    der = bytearray(x509.load_pem_x509_certificate(consortium.issue()).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    pem = x509.load_der_x509_certificate(bytes(der)).public_bytes(serialization.Encoding.PEM)
    refused(consortium, pem, "unknown CA|malformed")


def test_expired_and_not_yet_valid_name_both_times(consortium):
    pem = consortium.issue(days=30)
    end = consortium.now + timedelta(days=30)
    consortium.check(pem, now=end)
    error = refused(consortium, pem, "expired on 2026-03-31 12:00 UTC", now=end + timedelta(seconds=1))
    assert "ca sign --renew" in error.hint
    begin = consortium.now - timedelta(minutes=5)
    consortium.check(pem, now=begin)
    error = refused(consortium, pem, "not yet valid: valid from 2026-03-01 11:55 UTC", now=begin - timedelta(seconds=1))
    assert "clock" in error.hint


def test_the_ca_has_dates_too(consortium):
    pem = consortium.issue()
    refused(consortium, pem, "CA certificate: expired", now=consortium.now + timedelta(days=365 * 10))
    refused(consortium, pem, "CA certificate: not yet valid", now=consortium.now - timedelta(days=366))


def test_a_changed_ca_certificate(consortium):
    der = bytearray(x509.load_pem_x509_certificate(consortium.ca_pem).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    changed = x509.load_der_x509_certificate(bytes(der)).public_bytes(serialization.Encoding.PEM)
    refused(consortium, consortium.issue(), "CA certificate: malformed", ca_pem=changed)


def test_times_need_a_zone_and_any_zone_will_do(consortium):
    pem = consortium.issue(days=1)
    tokyo = timezone(timedelta(hours=9))
    consortium.check(pem, now=consortium.now.astimezone(tokyo))
    with pytest.raises(ValueError, match="without a time zone|time zone"):
        consortium.check(pem, now=datetime(2026, 3, 1))
    assert when(consortium.now.astimezone(tokyo)) == "2026-03-01 12:00 UTC"


def test_wrong_role(consortium):
    refused(
        consortium,
        consortium.issue(),
        r"wrong role: it is a node's \(node charite\), and a coordinator's",
        role="coordinator",
    )
    pem = consortium.issue("coordinator", "coordinator", ("c",))
    refused(consortium, pem, r"wrong role: it is a coordinator's \(the coordinator\), and a node's is needed")
    refused(consortium, consortium.issue("analyst", "x"), "wrong role: it is an analyst's")


def test_other_federation(consortium):
    refused(consortium, consortium.issue(), "other federation: it is for heart, and this is lung", federation="lung")


def test_another_nodes_name(consortium):
    refused(
        consortium, consortium.issue(), "another's name: it is that of node charite, and that of node mayo", name="mayo"
    )


def test_binding_a_message_to_its_sender(consortium):
    peer = consortium.check(consortium.issue())
    peer.require("node", "charite")
    for role, name in (("node", "mayo"), ("analyst", "charite"), ("coordinator", "coordinator")):
        with pytest.raises(CertificateError, match="speaks as another: the certificate is that of node charite"):
            peer.require(role, name)


def test_revoked(consortium):
    pem = consortium.issue()
    consortium.check(pem, crl_pem=consortium.crl_pem)
    consortium.revoke("charite", reason="key-compromise")
    error = refused(
        consortium, pem, "revoked by the CA on 2026-03-01 12:00 UTC, reason key-compromise", crl_pem=consortium.crl_pem
    )
    assert "fresh key" in error.hint
    consortium.check(consortium.issue("node", "mayo"), crl_pem=consortium.crl_pem)


def test_a_revocation_list_that_is_not_the_cas(consortium, another_consortium):
    pem = consortium.issue()
    refused(consortium, pem, "revocation list: is not signed by the consortium CA", crl_pem=another_consortium.crl_pem)
    refused(consortium, pem, "revocation list: malformed", crl_pem=b"")
    refused(consortium, pem, "revocation list: malformed", crl_pem=consortium.ca_pem)
    changed = bytearray(x509.load_pem_x509_crl(consortium.crl_pem).public_bytes(serialization.Encoding.DER))
    changed[-1] ^= 1
    crl = x509.load_der_x509_crl(bytes(changed)).public_bytes(serialization.Encoding.PEM)
    refused(consortium, pem, "revocation list", crl_pem=crl)


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"\0" * 100,
        b"-----BEGIN CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ],
)
def test_garbage(consortium, pem):
    refused(consortium, pem, "malformed")
    refused(consortium, consortium.issue(), "CA certificate: malformed", ca_pem=pem)


def test_the_wrong_file_is_recognised(consortium):
    folder = consortium.request()
    pem = consortium.sign(folder)
    refused(consortium, (folder / "tls.csr").read_bytes(), "one certificate is due, but it holds certificate request")
    refused(consortium, (folder / "tls.key").read_bytes(), "holds a private key where a certificate is due")
    refused(consortium, pem + pem, "one certificate is due, but it holds certificate and certificate")
    refused(consortium, pem + (folder / "tls.key").read_bytes(), "holds a private key")
    refused(consortium, pem, "is the certificate of a participant, not of a CA", ca_pem=pem)
    with pytest.raises(CertificateError, match="CA certificate: malformed"):
        check_ca((folder / "tls.csr").read_bytes(), consortium.now)


@pytest.mark.parametrize(
    "key",
    [
        lambda: rsa.generate_private_key(65537, 2048),
        lambda: ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate,
    ],
    ids=["RSA", "P-384", "Ed25519"],
)  # fmt: skip
def test_wrong_key_type(consortium, key):
    refused(consortium, consortium.forge(key=key()), "wrong key type: not an ECDSA P-256 key")


def test_certificates_that_our_ca_would_never_issue(consortium):
    uri = "spiffe://heart/node/charite"
    coordinator = "spiffe://heart/coordinator"
    for settings, fault in (
        ({}, None),
        ({"names": ()}, "states 0 identities"),
        ({"names": (uri, coordinator), "dns": ("c",)}, "states 2 identities"),
        ({"names": (uri, "https://x")}, "states 2 identities"),
        ({"names": ("spiffe://heart/node/Charite",)}, "is not the identity"),
        ({"dns": ("c.example.org",)}, "names no host"),
        ({"extra": (x509.RFC822Name("a@example.org"),)}, "names of another kind"),
        ({"usages": ()}, "no extended key usage"),
        ({"usages": (SERVER,)}, "its extended key usage is not that of the role node"),
        ({"usages": (CLIENT, SERVER)}, "its extended key usage is not that of the role node"),
        ({"usages": (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,)}, "its extended key usage is not"),
        ({"critical": False}, "malformed"),
        ({"ca_flag": True}, "malformed"),
    ):
        pem = consortium.forge(**settings)
        if fault is None:
            consortium.check(pem)
        else:
            refused(consortium, pem, fault)
    for settings, fault in (
        ({"names": (coordinator,), "usages": (SERVER,), "dns": ("c",)}, None),
        ({"names": (coordinator,), "usages": (SERVER,)}, "must name the hosts"),
        (
            {"names": (coordinator,), "usages": (CLIENT,), "dns": ("c",)},
            "its extended key usage is not that of the role",
        ),
    ):
        pem = consortium.forge(**settings)
        if fault is None:
            consortium.check(pem, role="coordinator")
        else:
            refused(consortium, pem, fault, role="coordinator")


def test_a_participant_is_no_ca(consortium):
    """What a node signs with its own key is of an unknown CA, also when the node's certificate is sent along."""
    node = consortium.request()
    pem = consortium.sign(node)
    key = serialization.load_pem_private_key((node / "tls.key").read_bytes(), None)
    leaf = x509.load_pem_x509_certificate(consortium.forge(names=("spiffe://heart/node/mayo",)))
    builder = x509.CertificateBuilder(
        issuer_name=x509.load_pem_x509_certificate(pem).subject,
        subject_name=leaf.subject,
        public_key=leaf.public_key(),
        serial_number=5,
        not_valid_before=leaf.not_valid_before_utc,
        not_valid_after=leaf.not_valid_after_utc,
        extensions=list(leaf.extensions),
    )
    refused(consortium, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), "unknown CA")


def test_messages_begin_with_what_was_checked(consortium):
    error = refused(consortium, b"", "^certificate of mayo: malformed", what="certificate of mayo")
    assert error.exit_code == 6


def test_fingerprints_are_openssls(consortium, tmp_path):
    folder = consortium.request()
    pem = consortium.sign(folder)
    leaf = x509.load_pem_x509_certificate(pem)
    assert fingerprint(pem) == "SHA256:" + leaf.fingerprint(hashes.SHA256()).hex(":")
    assert fingerprint((folder / "tls.csr").read_bytes()) != fingerprint(pem)
    text = b"Certificate:\n    Data: as openssl x509 -text writes it\n" + pem
    assert fingerprint(text) == fingerprint(pem)
    with pytest.raises(CertificateError, match="malformed"):
        fingerprint(b"nothing")


def test_stated_identity_is_for_messages_only(another_consortium):
    pem = another_consortium.issue()
    assert str(certificate_identity(pem)) == "node charite"
    assert certificate_names(pem) == ("spiffe://heart/node/charite",)
    assert certificate_hosts(pem) == ()


def test_peer_identity_shows_no_secret_and_is_frozen(consortium):
    peer = consortium.check(consortium.issue())
    assert isinstance(peer, PeerIdentity)
    with pytest.raises(AttributeError):
        peer.name = "mayo"
    assert check_certificate.__kwdefaults__ == {"what": "certificate"}
