"""The offline CA: what it signs, what it refuses, and what survives."""

from __future__ import annotations

import fcntl
import json
import os
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fedsecure.crypto import authority, passphrase
from fedsecure.crypto.certificates import fingerprint
from fedsecure.errors import CertificateError, ConfigError


@pytest.fixture
def quick_scrypt(monkeypatch):
    """The stretching at a cost that tests can afford."""
    monkeypatch.setattr(passphrase, "COST", 1 << 10)


def refused(consortium, csr: bytes, fault: str, error=CertificateError, **changes):
    settings = {"role": "node", "name": "charite", "days": 90, "passphrase": None, "now": consortium.now}
    before = authority.list_certificates(consortium.ca)
    with pytest.raises(error, match=fault) as caught:
        authority.sign_request(consortium.ca, csr, **{**settings, **changes})
    assert authority.list_certificates(consortium.ca) == before
    return caught.value


def csr_of(consortium, **who) -> bytes:
    return (consortium.request(**who) / "tls.csr").read_bytes()


def test_what_a_new_ca_holds(consortium):
    modes = {p.name: p.stat().st_mode & 0o777 for p in consortium.ca.iterdir()}
    assert modes == {"ca.key": 0o600, "ca.crt": 0o644, "crl.pem": 0o644, "index.json": 0o600}
    assert consortium.ca.stat().st_mode & 0o777 == 0o700
    made = authority.read_authority(consortium.ca)
    assert made == consortium.authority
    assert made.fingerprint == fingerprint(consortium.ca_pem)
    assert not made.key_encrypted
    ca = x509.load_pem_x509_certificate(consortium.ca_pem)
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    assert made.not_after == consortium.now - timedelta(days=365) + timedelta(days=3650)


def test_a_ca_is_never_made_over_another(consortium):
    before = {p.name: p.read_bytes() for p in consortium.ca.iterdir()}
    with pytest.raises(CertificateError, match="there is a CA here already"):
        authority.init_ca(consortium.ca, "lung", None, 1, consortium.now)
    assert {p.name: p.read_bytes() for p in consortium.ca.iterdir()} == before


def test_a_ca_that_cannot_be_finished_leaves_nothing(tmp_path, monkeypatch, consortium):
    def full(*_: object) -> None:
        raise CertificateError("index.json: cannot be written: No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(authority, "write_index", full)
        with pytest.raises(CertificateError, match="No space left"):
            authority.init_ca(tmp_path / "new", "heart", None, 1, consortium.now)
    assert list((tmp_path / "new").iterdir()) == []
    authority.init_ca(tmp_path / "new", "heart", None, 1, consortium.now)


@pytest.mark.parametrize(
    ("federation", "secret", "years", "fault"),
    [
        ("Heart", None, 1, "federation name"),
        ("heart", None, 0, "1 to 30"),
        ("heart", None, 31, "1 to 30"),
        ("heart", b"short", 1, "too short"),
        ("heart", b"", 1, "too short"),
    ],
)
def test_what_no_ca_is_made_with(tmp_path, consortium, federation, secret, years, fault):
    with pytest.raises(ConfigError, match=fault):
        authority.init_ca(tmp_path / "new", federation, secret, years, consortium.now)
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("quick_scrypt")
def test_the_passphrase(consortium, tmp_path):
    folder = tmp_path / "locked"
    made = authority.init_ca(folder, "heart", "grüne Wiese".encode(), 1, consortium.now)
    assert made.key_encrypted
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in (folder / "ca.key").read_bytes()
    csr = csr_of(consortium)
    settings = {"role": "node", "name": "charite", "days": 9, "now": consortium.now}
    with pytest.raises(CertificateError, match="ca.key: wrong passphrase"):
        authority.sign_request(folder, csr, passphrase=b"another one", **settings)
    with pytest.raises(CertificateError, match="no passphrase was given"):
        authority.sign_request(folder, csr, passphrase=None, **settings)
    assert authority.list_certificates(folder) == ()
    authority.sign_request(folder, csr, passphrase="grüne Wiese".encode(), **settings)
    refused(consortium, csr, "a passphrase was given but the key is not encrypted", passphrase=b"anything")


def test_the_passphrase_is_stretched_by_default(consortium, tmp_path):
    folder = tmp_path / "locked"
    authority.init_ca(folder, "heart", b"passphrase", 1, consortium.now)
    data = (folder / "ca.key").read_bytes()
    assert data.startswith(b"fedsecure key, scrypt n=131072 r=8 p=1 salt=")
    assert b"passphrase" not in data
    with pytest.raises(ValueError, match="."):  # PKCS#8's own password is not the passphrase
        serialization.load_pem_private_key(data, b"passphrase")
    for damaged, fault in (
        (data.split(b"\n", 1)[1], "its first line is missing"),
        (data.replace(b"n=131072", b"n=99999999"), "its first line is missing"),
        (data.replace(b"n=131072", b"n=131071"), "its first line is missing"),
        (data.replace(b"r=8", b"r=9"), "its first line is missing"),
    ):
        with pytest.raises(CertificateError, match=fault):
            passphrase.unlock(damaged, b"passphrase", "ca.key")


def test_the_request_must_ask_for_exactly_what_is_signed(consortium):
    csr = csr_of(consortium)
    refused(consortium, csr, "asks for a certificate as node charite, not as node mayo", name="mayo")
    refused(consortium, csr, "as node charite, not as analyst charite", role="analyst")
    refused(consortium, csr, "not as the coordinator", role="coordinator", name="coordinator")
    refused(consortium, csr, "role 'server'", ConfigError, role="server")
    refused(consortium, csr_of(consortium, federation="lung", folder="lung"), "other federation: it asks for lung")


def test_proof_of_possession(consortium):
    der = bytearray(x509.load_pem_x509_csr(csr_of(consortium)).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    changed = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    refused(consortium, changed, "its signature is not by the key|malformed")


def test_requests_that_ask_for_more(consortium):
    key = ec.generate_private_key(ec.SECP256R1())
    san = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("spiffe://heart/node/charite")])
    plain = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    named = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "charite")])
    )
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    hosts = x509.SubjectAlternativeName([*san, x509.DNSName("coordinator.example.org")])
    for builder, signer, fault in (
        (plain, key, "states 0 identities"),
        (named.add_extension(san, True), key, "asks for a subject"),
        (plain.add_extension(san, True).add_extension(constraints, True), key, "extensions besides its names"),
        (plain.add_extension(hosts, True), key, "names no host"),
        (plain.add_extension(san, True), rsa.generate_private_key(65537, 2048), "wrong key type"),
        (plain.add_extension(san, True), ec.generate_private_key(ec.SECP384R1()), "wrong key type"),
    ):
        csr = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        refused(consortium, csr, fault)
    for csr in (b"", b"garbage", consortium.ca_pem, (consortium.ca / "ca.key").read_bytes()):
        refused(consortium, csr, "certificate request: (malformed|holds a private key)")


def test_lifetimes(consortium):
    csr = csr_of(consortium)
    for days in (0, -1, 826):
        refused(consortium, csr, "allowed: 1 to 825", ConfigError, days=days)
    late = consortium.authority.not_after - timedelta(days=10)
    error = refused(consortium, csr, "end after the CA's own certificate", ConfigError, now=late, days=11)
    assert error.hint == "at most 10 days"
    authority.sign_request(consortium.ca, csr, role="node", name="charite", days=10, passphrase=None, now=late)
    refused(consortium, csr, "CA certificate|ca.crt: expired", now=consortium.authority.not_after + timedelta(days=1))


def test_a_second_live_certificate_needs_renew(consortium):
    folder = consortium.request()
    first = consortium.sign(folder)
    said = "node charite has a live certificate already: serial [0-9a-f]+, until 2"
    refused(consortium, (folder / "tls.csr").read_bytes(), said)
    other = csr_of(consortium, folder="another-machine")
    assert "--renew" in refused(consortium, other, "has a live certificate already").hint
    second = consortium.sign(folder, renew=True)
    assert consortium.check(first).name == consortium.check(second).name == "charite"
    assert consortium.sign(folder, at=consortium.now + timedelta(days=91))  # the first two have expired


def test_one_key_one_name(consortium):
    folder = consortium.request()
    consortium.sign(folder)
    key = serialization.load_pem_private_key((folder / "tls.key").read_bytes(), None)
    san = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("spiffe://heart/node/mayo")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).add_extension(san, True)
    csr = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    refused(consortium, csr, "its key was certified before as node charite", name="mayo")


def test_a_revoked_key_stays_out(consortium):
    folder = consortium.request()
    consortium.sign(folder)
    consortium.revoke("charite")
    refused(consortium, (folder / "tls.csr").read_bytes(), "its key was revoked on 2026-03-01", renew=True)
    assert consortium.sign(consortium.request(folder="fresh"))  # a fresh key of the same name may come in


def test_revoking_by_name_by_serial_and_again(consortium):
    folder = consortium.request()
    consortium.sign(folder)
    consortium.sign(folder, renew=True)
    old = consortium.sign(consortium.request("node", "mayo"), at=consortium.now - timedelta(days=100), days=10)
    serial = f"{x509.load_pem_x509_certificate(old).serial_number:x}"
    assert [c.name for c in consortium.revoke("charite", reason="superseded")] == ["charite", "charite"]
    with pytest.raises(CertificateError, match="or it has expired"):
        consortium.revoke("mayo")
    spelled = ":".join(serial.zfill(40)[i : i + 2] for i in range(0, 40, 2)).upper()
    assert [c.serial for c in consortium.revoke(spelled)] == [serial]
    number = x509.CRLNumber.oid
    crl = x509.load_pem_x509_crl(consortium.crl_pem)
    assert (len(crl), crl.extensions.get_extension_for_oid(number).value.crl_number) == (3, 3)
    (consortium.ca / "crl.pem").unlink()  # as after a crash between register and list
    again = consortium.revoke("charite", reason="key-compromise")
    assert {c.reason for c in again} == {"superseded"}
    crl = x509.load_pem_x509_crl(consortium.crl_pem)
    assert (len(crl), crl.extensions.get_extension_for_oid(number).value.crl_number) == (3, 4)
    assert [c.state(consortium.now) for c in authority.list_certificates(consortium.ca)] == ["revoked"] * 3


def test_revoking_what_is_not_clear(consortium):
    consortium.issue("node", "charite")
    consortium.issue("analyst", "charite")
    with pytest.raises(CertificateError, match="both a node and an analyst"):
        consortium.revoke("charite")
    with pytest.raises(CertificateError, match="no certificate of this CA has the name"):
        consortium.revoke("mayo")
    with pytest.raises(ConfigError, match="reason 'because'"):
        consortium.revoke("charite", reason="because")
    assert [c.role for c in consortium.revoke("charite", role="analyst")] == ["analyst"]
    assert {c.role: c.state(consortium.now) for c in authority.list_certificates(consortium.ca)} == {
        "node": "live", "analyst": "revoked",
    }  # fmt: skip


def test_every_certificate_is_kept(consortium):
    pem = consortium.issue()
    issued = authority.list_certificates(consortium.ca)[0]
    assert (consortium.ca / "issued" / f"{issued.serial}.crt").read_bytes() == pem
    assert issued.fingerprint == fingerprint(pem)
    assert (issued.role, issued.name, issued.hosts) == ("node", "charite", ())


def test_missing_ca(tmp_path, consortium):
    for folder in (tmp_path / "nothing", tmp_path):
        for act in (authority.list_certificates, authority.read_authority):
            with pytest.raises(CertificateError, match="no CA here"):
                act(folder)
    with pytest.raises(CertificateError, match="no CA here"):
        authority.revoke(tmp_path / "nothing", "x", passphrase=None, now=consortium.now)
    (consortium.ca / "ca.key").unlink()
    refused(consortium, csr_of(consortium), "ca.key: no such file")


def test_loose_or_foreign_ca_key(consortium, another_consortium):
    csr = csr_of(consortium)
    (consortium.ca / "ca.key").chmod(0o640)
    assert "chmod 600" in refused(consortium, csr, "CA key has mode 0640").hint
    (consortium.ca / "ca.key").chmod(0o600)
    (consortium.ca / "ca.key").write_bytes((another_consortium.ca / "ca.key").read_bytes())
    refused(consortium, csr, "is not the key of")
    (consortium.ca / "ca.key").write_bytes(b"")
    refused(consortium, csr, "damaged, or not a private key")


def damage(raw: dict, what: str) -> object:
    entry = raw["certificates"][0]
    changes = {
        "a list": lambda: [raw],
        "format": lambda: raw | {"format": 2},
        "extra key": lambda: raw | {"more": 1},
        "crl_number": lambda: raw | {"crl_number": "1"},
        "federation": lambda: raw | {"federation": "Heart"},
        "federation type": lambda: raw | {"federation": 1},
        "certificates": lambda: raw | {"certificates": {}.get("x")},
        "twice": lambda: raw | {"certificates": [entry, entry]},
        "entry is text": lambda: raw | {"certificates": ["x"]},
        "entry lacks": lambda: raw | {"certificates": [{k: v for k, v in entry.items() if k != "key"}]},
        "serial": lambda: raw | {"certificates": [entry | {"serial": "XYZ"}]},
        "role": lambda: raw | {"certificates": [entry | {"role": "server"}]},
        "time": lambda: raw | {"certificates": [entry | {"not_after": "soon"}]},
        "time without zone": lambda: raw | {"certificates": [entry | {"not_after": "2026-01-01T00:00:00"}]},
        "name type": lambda: raw | {"certificates": [entry | {"name": 5}]},
        "hosts": lambda: raw | {"certificates": [entry | {"hosts": 5}]},
        "reason": lambda: raw | {"certificates": [entry | {"revoked_at": entry["not_after"], "reason": "why"}]},
        "reason alone": lambda: raw | {"certificates": [entry | {"reason": "superseded"}]},
    }
    return changes[what]()


@pytest.mark.parametrize(
    "what",
    [
        "a list", "format", "extra key", "crl_number", "federation", "federation type", "certificates", "twice",
        "entry is text", "entry lacks", "serial", "role", "time", "time without zone", "name type", "hosts", "reason",
        "reason alone",
    ],
)  # fmt: skip
def test_damaged_registers_are_named(consortium, what):
    consortium.issue()
    path = consortium.ca / "index.json"
    path.write_text(json.dumps(damage(json.loads(path.read_text()), what)))
    with pytest.raises(CertificateError, match="index.json: the register of the CA is damaged") as caught:
        authority.list_certificates(consortium.ca)
    assert "backup" in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", '{"format": 1}', "\0"])
def test_registers_that_are_no_json(consortium, text):
    (consortium.ca / "index.json").write_text(text)
    with pytest.raises(CertificateError, match="is damaged"):
        authority.list_certificates(consortium.ca)


def test_a_register_of_another_federation(consortium):
    path = consortium.ca / "index.json"
    path.write_text(path.read_text().replace('"heart"', '"lung"'))
    refused(consortium, csr_of(consortium, federation="lung"), "are of two federations")


def test_two_commands_at_once(consortium):
    csr = csr_of(consortium)
    number = os.open(consortium.ca, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        refused(consortium, csr, "another command is working on this CA")
    finally:
        os.close(number)
    consortium.sign(consortium.root / "node-charite")
