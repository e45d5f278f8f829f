"""What certificates and requests of a federation look like: the one place where their fields are set."""

from __future__ import annotations

from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedsecure.crypto.certificates import USAGES
from fedsecure.crypto.names import Identity
from fedsecure.crypto.pem import san
from fedsecure.errors import CertificateError

__all__ = ["BACKDATE", "build_ca", "build_leaf", "build_request", "requested_names_only"]

#: Certificates begin this long before they are made, so that a clock which is a little late accepts them.
BACKDATE = timedelta(minutes=5)


def build_ca(key: ec.EllipticCurvePrivateKey, federation: str, *, begin: datetime, end: datetime) -> x509.Certificate:
    """A self-signed root that may issue leaves and revocation lists, and no further CA (RFC 5280, section 4.2.1.9)."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{federation[:44]} consortium CA")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"spiffe://{federation}")]), critical=False
        )
        .sign(key, hashes.SHA256())
    )


def build_leaf(
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    public_key: ec.EllipticCurvePublicKey,
    identity: Identity,
    hosts: tuple[str, ...],
    *,
    begin: datetime,
    end: datetime,
) -> x509.Certificate:
    """A leaf: empty subject, critical alternative name, one extended key usage, random 159-bit serial number."""
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(ca.subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([USAGES[identity.role]]), critical=False)
        .add_extension(san(identity, hosts), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def build_request(key: ec.EllipticCurvePrivateKey, identity: Identity, hosts: tuple[str, ...]) -> bytes:
    """A certificate request (RFC 2986) as PEM: empty subject, identity as alternative name. Raises ``ConfigError``."""
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .add_extension(san(identity, hosts), critical=True)
        .sign(key, hashes.SHA256())
    )
    return request.public_bytes(serialization.Encoding.PEM)


def requested_names_only(request: x509.CertificateSigningRequest, what: str) -> None:
    """Raise ``CertificateError`` when a request asks for more than an alternative name: the CA grants nothing else."""
    asked = [e.oid for e in request.extensions]
    if len(request.subject) or asked != [x509.SubjectAlternativeName.oid]:
        raise CertificateError(
            f"{what}: malformed: it asks for a subject or for extensions besides its names", hint="make it with init"
        )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
