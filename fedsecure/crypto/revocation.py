"""Certificate revocation lists (RFC 5280, section 5): made by the offline CA, carried to everybody as one file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedsecure.crypto.pem import PARSE_ERRORS
from fedsecure.errors import CertificateError

__all__ = ["REASONS", "Revoked", "build_crl", "load_crl", "revocation_of"]

#: Reasons that an operator may give, in RFC 5280's words (section 5.3.1).
REASONS: dict[str, x509.ReasonFlags] = {
    "unspecified": x509.ReasonFlags.unspecified,
    "key-compromise": x509.ReasonFlags.key_compromise,
    "superseded": x509.ReasonFlags.superseded,
    "cessation-of-operation": x509.ReasonFlags.cessation_of_operation,
}


@dataclass(frozen=True, slots=True)
class Revoked:
    """One entry: the serial number, the moment, and the reason (a key of ``REASONS``)."""

    serial: int
    at: datetime
    reason: str


def build_crl(
    ca: x509.Certificate, key: ec.EllipticCurvePrivateKey, revoked: Iterable[Revoked], *, number: int, now: datetime
) -> bytes:
    """The signed list as PEM. It counts until a list with a higher ``number`` replaces it, at most to the CA's end."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.subject)
        .last_update(now)
        .next_update(ca.not_valid_after_utc)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(x509.CRLNumber(number), critical=False)
    )
    for item in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(item.serial).revocation_date(item.at)
        if item.reason != "unspecified":  # RFC 5280, section 5.3.1: absent rather than unspecified
            entry = entry.add_extension(x509.CRLReason(REASONS[item.reason]), critical=False)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def load_crl(pem: bytes, ca: x509.Certificate, what: str = "revocation list") -> x509.CertificateRevocationList:
    """The list, when the CA signed it. Raises ``CertificateError``, naming ``what``: damaged, or another CA's."""
    try:
        crl = x509.load_pem_x509_crl(pem)
        _ = crl.extensions
        public_key = ca.public_key()
        genuine = crl.issuer == ca.subject and isinstance(public_key, ec.EllipticCurvePublicKey)
        genuine = genuine and crl.is_signature_valid(public_key)  # type: ignore[arg-type]
    except PARSE_ERRORS:
        raise CertificateError(
            f"{what}: malformed: not a revocation list", hint="get crl.pem from the CA again"
        ) from None
    if not genuine:
        raise CertificateError(
            f"{what}: is not signed by the consortium CA of this federation", hint="get crl.pem from the CA again"
        )
    return crl


def revocation_of(crl: x509.CertificateRevocationList, serial: int) -> Revoked | None:
    """The entry of ``serial``, or ``None``. Raises ``CertificateError`` for a damaged entry."""
    entry = crl.get_revoked_certificate_by_serial_number(serial)
    if entry is None:
        return None
    try:
        flag = entry.extensions.get_extension_for_class(x509.CRLReason).value.reason
    except x509.ExtensionNotFound:
        flag = x509.ReasonFlags.unspecified
    except PARSE_ERRORS:
        raise CertificateError("revocation list: malformed: an entry of it cannot be read") from None
    reason = next((name for name, known in REASONS.items() if known == flag), "unspecified")
    return Revoked(serial, entry.revocation_date_utc, reason)
