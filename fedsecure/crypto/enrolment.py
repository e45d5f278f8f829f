"""How a participant joins: keys and a request are made in its own folder, and a certificate is taken in.

The folder holds ``tls.key`` (0600, ECDSA P-256), ``tls.csr``, ``identity.key`` (0600, Ed25519), ``identity.pub``, and
after enrolment ``tls.crt`` and ``ca.crt``. No private key ever leaves it; ``tls.csr`` goes to the CA.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from fedsecure.crypto.certificates import PeerIdentity, check_ca, check_certificate, is_ca
from fedsecure.crypto.certificates import fingerprint as fingerprint_of
from fedsecure.crypto.issuing import build_request
from fedsecure.crypto.keyfiles import (
    all_or_nothing,
    make_private_folder,
    present,
    read_public,
    read_secret,
    write_public,
    write_secret,
)
from fedsecure.crypto.names import Identity, check_hosts
from fedsecure.crypto.pem import (
    ec_public_key,
    load_certificate,
    load_ec_key,
    load_request,
    private_pem,
    stated_identity,
)
from fedsecure.crypto.signatures import generate_identity, public_identity_pem
from fedsecure.errors import CertificateError

__all__ = [
    "CA_CERT",
    "IDENTITY_KEY",
    "IDENTITY_PUB",
    "TLS_CERT",
    "TLS_CSR",
    "TLS_KEY",
    "Enrolment",
    "accept_certificate",
    "check_key_pair",
    "create_identity",
    "read_enrolment",
    "same_fingerprint",
]

TLS_KEY, TLS_CSR, TLS_CERT, CA_CERT = "tls.key", "tls.csr", "tls.crt", "ca.crt"
IDENTITY_KEY, IDENTITY_PUB = "identity.key", "identity.pub"


@dataclass(frozen=True, slots=True)
class Enrolment:
    """What was made, and the two fingerprints to read out to the CA's keeper and the other institutions."""

    folder: Path
    federation: str
    role: str
    name: str
    csr: Path
    csr_fingerprint: str
    identity_fingerprint: str


def create_identity(folder: Path, *, federation: str, role: str, name: str, dns: tuple[str, ...] = ()) -> Enrolment:
    """Make the keys and the certificate request of a new participant in ``folder`` (made with mode 0700 if missing).

    ``dns``: the host names and addresses that nodes reach a coordinator by; empty for every other role. ``name`` of the
    coordinator is ``coordinator``. Nothing is overwritten, and a failed attempt leaves nothing behind. Raises
    ``ConfigError`` for malformed names and ``CertificateError`` when an identity is there or cannot be written.
    """
    identity = Identity(federation, role, name)
    check_hosts(role, dns)
    make_private_folder(folder)
    names = (TLS_KEY, TLS_CSR, IDENTITY_KEY, IDENTITY_PUB, TLS_CERT, CA_CERT)
    for there in names:
        if present(folder / there):
            raise CertificateError(
                f"{folder / there}: exists already, and an identity is never overwritten",
                hint="use another folder, or move the old one away; to renew its certificate send its tls.csr again",
            )
    key = ec.generate_private_key(ec.SECP256R1())
    csr = build_request(key, identity, dns)
    write_secret(folder / TLS_KEY, private_pem(key))  # who gets past this line is alone here
    with all_or_nothing(*(folder / name for name in names)):
        signer = generate_identity(folder / IDENTITY_KEY)
        write_public(folder / IDENTITY_PUB, public_identity_pem(signer.public_bytes))
        write_public(folder / TLS_CSR, csr)
    return Enrolment(folder, federation, role, name, folder / TLS_CSR, fingerprint_of(csr), signer.fingerprint)


def read_enrolment(folder: Path) -> Identity:
    """Whom the request in ``folder`` asks a certificate for. Raises ``CertificateError`` when there is none."""
    path = folder / TLS_CSR
    return stated_identity(load_request(read_public(path, "certificate request"), str(path)), str(path))


def accept_certificate(folder: Path, *, cert: Path, ca_cert: Path, fingerprint: str, now: datetime) -> PeerIdentity:
    """Take in the certificate that the CA issued, and the CA's own; changes nothing when anything is wrong.

    ``fingerprint``: that of the CA certificate, got from the CA's keeper by another way than the file. The certificate
    must chain to that CA, be for the key in ``folder``, and carry the role and name of its request. Writes ``tls.crt``
    and ``ca.crt``; a renewal replaces them. Raises ``CertificateError`` naming the fault.
    """
    cert_pem = read_public(cert, "certificate")
    ca_pem = read_public(ca_cert, "CA certificate")
    check_ca(ca_pem, now, str(ca_cert))
    same_fingerprint(ca_pem, fingerprint, str(ca_cert))
    if is_ca(cert_pem, str(cert)):
        raise CertificateError(
            f"{cert}: is the certificate of a CA, not the one that it issued for this participant",
            hint="give the certificate of ca sign as --cert, and the CA's own, ca.crt, as --ca-cert",
        )
    due = read_enrolment(folder)
    peer = check_certificate(
        cert_pem,
        ca_pem=ca_pem,
        federation=due.federation,
        role=due.role,
        name=due.name,
        now=now,
        crl_pem=None,
        what=str(cert),
    )
    key_path = folder / TLS_KEY
    check_key_pair(read_secret(key_path, "TLS key"), cert_pem, key_name=str(key_path), cert_name=str(cert))
    _install(folder, cert_pem, ca_pem)
    return peer


def check_key_pair(key_pem: bytes, cert_pem: bytes, *, key_name: str, cert_name: str) -> Identity:
    """Whom the certificate states, unchecked but for belonging to the key. Raises ``CertificateError``."""
    certificate = load_certificate(cert_pem, cert_name)
    if load_ec_key(key_pem, key_name).public_key() != ec_public_key(certificate, cert_name):
        raise CertificateError(
            f"{cert_name}: is for another key than {key_name}",
            hint="have the CA sign the tls.csr that lies beside the key; an older request may have been signed",
        )
    return stated_identity(certificate, cert_name)


def same_fingerprint(pem: bytes, expected: str, what: str) -> None:
    """Raise ``CertificateError``, naming both, unless the certificate or request ``pem`` has fingerprint ``expected``
    (case, colons, spaces and the prefix ``SHA256:`` do not count)."""
    plain = expected.strip().upper().removeprefix("SHA256:").replace(":", "").replace(" ", "")
    if len(plain) != 64 or set(plain) - set("0123456789ABCDEF"):
        raise CertificateError(
            f"fingerprint {expected[:100]!r} is malformed",
            hint="SHA256: and 64 hexadecimal digits, as ca init prints it",
        )
    actual = fingerprint_of(pem)
    if actual.upper().removeprefix("SHA256:").replace(":", "") != plain:
        raise CertificateError(
            f"{what}: has the fingerprint {actual}, not {expected.strip()}",
            hint="do not use it; ask the other side to read its fingerprint out again",
        )


def _install(folder: Path, cert_pem: bytes, ca_pem: bytes) -> None:
    """Both files or none: the first is put back when the second cannot be written."""
    ca_path, cert_path = folder / CA_CERT, folder / TLS_CERT
    before = read_public(ca_path, "CA certificate") if present(ca_path) else None
    write_public(ca_path, ca_pem)
    try:
        write_public(cert_path, cert_pem)
    except CertificateError:
        if before is None:
            ca_path.unlink(missing_ok=True)
        else:
            write_public(ca_path, before)
        raise
