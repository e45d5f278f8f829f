"""A federation in a temporary folder: its CA, and participants enrolled by the real steps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedsecure.crypto import authority, enrolment
from fedsecure.crypto.certificates import USAGES, PeerIdentity, check_certificate

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Consortium:
    """A CA named ``heart`` whose key is not encrypted, made a year before ``now``."""

    def __init__(self, root: Path) -> None:
        self.root, self.now, self.ca = root, NOW, root / "ca"
        self.authority = authority.init_ca(self.ca, "heart", None, 10, NOW - timedelta(days=365))

    @property
    def ca_pem(self) -> bytes:
        return (self.ca / "ca.crt").read_bytes()

    @property
    def crl_pem(self) -> bytes:
        return (self.ca / "crl.pem").read_bytes()

    def request(self, role="node", name="charite", hosts=(), federation="heart", folder=None) -> Path:
        """Keys and request in a folder of their own; returns the folder."""
        folder = self.root / (folder or f"{role}-{name}")
        enrolment.create_identity(folder, federation=federation, role=role, name=name, dns=tuple(hosts))
        return folder

    def sign(self, folder: Path, at=NOW, days=90, renew=False) -> bytes:
        who = enrolment.read_enrolment(folder)
        csr = (folder / "tls.csr").read_bytes()
        return authority.sign_request(
            self.ca, csr, role=who.role, name=who.name, days=days, passphrase=None, now=at, renew=renew
        )

    def issue(self, role="node", name="charite", hosts=(), at=NOW, days=90) -> bytes:
        """A certificate, straight."""
        return self.sign(self.request(role, name, hosts), at=at, days=days)

    def revoke(self, target: str, **how):
        return authority.revoke(self.ca, target, passphrase=None, now=self.now, **how)

    def check(self, pem: bytes, **changes) -> PeerIdentity:
        settings = {
            "ca_pem": self.ca_pem, "federation": "heart", "role": "node", "name": None, "now": NOW, "crl_pem": None,
        }  # fmt: skip
        return check_certificate(pem, **{**settings, **changes})

    def forge(
        self,
        names=("spiffe://heart/node/charite",),
        dns=(),
        usages=(ExtendedKeyUsageOID.CLIENT_AUTH,),
        key=None,
        critical=True,
        ca_flag=False,
        extra=(),
    ) -> bytes:
        """A leaf that our CA would never issue, signed with its real key all the same."""
        ca_key = serialization.load_pem_private_key((self.ca / "ca.key").read_bytes(), None)
        ca = x509.load_pem_x509_certificate(self.ca_pem)
        key = key or ec.generate_private_key(ec.SECP256R1())
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(ca.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - timedelta(days=1))
            .not_valid_after(NOW + timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=ca_flag, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )
        san = [x509.UniformResourceIdentifier(n) for n in names] + [x509.DNSName(d) for d in dns] + list(extra)
        if san:
            builder = builder.add_extension(x509.SubjectAlternativeName(san), critical=critical)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return builder.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    return Consortium(tmp_path)


@pytest.fixture
def another_consortium(tmp_path: Path) -> Consortium:
    """Of the same name, so that only its key tells it apart."""
    return Consortium(tmp_path / "other")


@pytest.fixture
def usages():
    return USAGES
