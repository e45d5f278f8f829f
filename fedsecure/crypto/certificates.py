"""Checking a certificate, and naming which fault it has.

A federation's certificates are ECDSA P-256 leaves issued directly by its one consortium CA: empty subject, a critical
subject alternative name with the identity as a URI, and one extended key usage, so that no node can pass for the
coordinator. Chain, dates, usages and extensions are checked by ``cryptography``'s verifier (RFC 5280 and the CA/B
profile); what this module adds is who the certificate is for, revocation, and words.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from fedsecure.crypto.names import COORDINATOR, Identity, describe
from fedsecure.crypto.pem import PARSE_ERRORS, ec_public_key, fingerprint, load_certificate, stated_identity
from fedsecure.crypto.revocation import load_crl, revocation_of
from fedsecure.errors import CertificateError

__all__ = [
    "PeerIdentity",
    "as_utc",
    "certificate_hosts",
    "certificate_identity",
    "certificate_names",
    "check_ca",
    "check_certificate",
    "fingerprint",
    "is_ca",
    "last_ms",
    "when",
]

#: Role -> the one extended key usage of its certificates.
USAGES = {
    "node": ExtendedKeyUsageOID.CLIENT_AUTH,
    "analyst": ExtendedKeyUsageOID.CLIENT_AUTH,
    "coordinator": ExtendedKeyUsageOID.SERVER_AUTH,
}


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """Whose a checked certificate is. ``name`` is ``coordinator`` for the coordinator; ``not_after`` is in UTC."""

    federation: str
    role: str
    name: str
    fingerprint: str
    not_after: datetime

    def require(self, role: str, name: str) -> None:
        """Raise ``CertificateError`` unless this is ``name`` in ``role``: binds a message to the peer that sent it."""
        if (self.role, self.name) != (role, name):
            raise CertificateError(
                f"speaks as another: the certificate is that of {describe(self.role, self.name)}, "
                f"but the message is in the name of {describe(role, name[:64])}",
                hint="each participant uses its own certificate and its own name",
            )


def as_utc(now: datetime) -> datetime:
    """``now`` in UTC. Raises ``ValueError`` for a time without a zone, which could mean anything."""
    if now.tzinfo is None:
        raise ValueError("a time without a time zone was given")
    return now.astimezone(UTC)


def when(moment: datetime) -> str:
    """A moment as every message of ours writes it: ``2026-03-01 12:30 UTC``."""
    return as_utc(moment).strftime("%Y-%m-%d %H:%M UTC")


def check_certificate(
    pem: bytes,
    *,
    ca_pem: bytes,
    federation: str,
    role: str | tuple[str, ...],
    name: str | None,
    now: datetime,
    crl_pem: bytes | None,
    what: str = "certificate",
) -> PeerIdentity:
    """Check one certificate against the federation's CA and say whose it is.

    ``role``: the role, or the roles, that will do. ``name``: the name it must have, ``None`` for any. ``now``: the time
    to check dates at, with a time zone. ``crl_pem``: the revocation list, ``None`` when there is none yet. ``what``
    begins every message. Raises ``CertificateError`` naming the first fault of: malformed, wrong key type, unknown CA,
    not yet valid, expired, other federation, wrong role, another's name, revoked.
    """
    now = as_utc(now)
    roles = (role,) if isinstance(role, str) else role
    certificate = load_certificate(pem, what)
    ca = check_ca(ca_pem, now)
    ec_public_key(certificate, what)
    _check_issuer(certificate, ca, ca_pem, what)
    _check_dates(certificate, now, what)
    identity = stated_identity(certificate, what)
    _check_identity(identity, federation, roles, name, what)
    _check_profile(certificate, ca, identity.role, now, what)
    if crl_pem is not None:
        _check_revocation(certificate, ca, crl_pem, what, identity)
    return PeerIdentity(
        identity.federation, identity.role, identity.name, fingerprint(pem), certificate.not_valid_after_utc
    )


def check_ca(ca_pem: bytes, now: datetime, what: str = "CA certificate") -> x509.Certificate:
    """The CA's certificate, when it is one and its dates hold. Raises ``CertificateError``, naming ``what``."""
    ca = load_certificate(ca_pem, what)
    key = ec_public_key(ca, what)
    try:
        constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = ca.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        constraints, usage = None, None
    if constraints is None or usage is None or not (constraints.ca and usage.key_cert_sign):
        raise CertificateError(
            f"{what}: is the certificate of a participant, not of a CA", hint="give the CA's own certificate, ca.crt"
        )
    try:
        ca.verify_directly_issued_by(ca)
    except (InvalidSignature, ValueError, TypeError):
        raise CertificateError(f"{what}: malformed: not signed by its own key {key.curve.name}") from None
    _check_dates(ca, as_utc(now), what)
    return ca


def last_ms(pem: bytes, what: str = "certificate") -> int:
    """Until when a certificate says that it is valid, *unchecked*, in milliseconds since 1970-01-01 UTC. Raises
    ``CertificateError``."""
    return int(load_certificate(pem, what).not_valid_after_utc.timestamp() * 1000)


def is_ca(pem: bytes, what: str = "certificate") -> bool:
    """Whether a certificate says that it is a CA's, *unchecked*. Raises ``CertificateError``."""
    try:
        return bool(load_certificate(pem, what).extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False


def certificate_identity(pem: bytes, what: str = "certificate") -> Identity:
    """Whom a certificate states, *unchecked*: for messages, and to choose a check. Raises ``CertificateError``."""
    return stated_identity(load_certificate(pem, what), what)


def certificate_hosts(pem: bytes, what: str = "certificate") -> tuple[str, ...]:
    """The hosts that a certificate states, *unchecked*, names and addresses: for messages. Raises
    ``CertificateError``."""
    return _alternative_names(pem, what, x509.DNSName, x509.IPAddress)


def certificate_names(pem: bytes, what: str = "certificate") -> tuple[str, ...]:
    """All that a certificate states, *unchecked*, hosts and URIs: for messages. Raises ``CertificateError``."""
    return _alternative_names(pem, what, x509.DNSName, x509.IPAddress, x509.UniformResourceIdentifier)


def _alternative_names(pem: bytes, what: str, *kinds: type[x509.GeneralName]) -> tuple[str, ...]:
    try:
        names = load_certificate(pem, what).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(n.value) for n in names if isinstance(n, kinds))


def _check_issuer(certificate: x509.Certificate, ca: x509.Certificate, ca_pem: bytes, what: str) -> None:
    try:
        certificate.verify_directly_issued_by(ca)
    except (InvalidSignature, ValueError, TypeError, *PARSE_ERRORS):
        raise CertificateError(
            f"{what}: unknown CA: issued by {_issuer(certificate)}, not by this federation's CA {fingerprint(ca_pem)}",
            hint="compare CA fingerprints with the other side; both must have enrolled with one consortium CA",
        ) from None


def _issuer(certificate: x509.Certificate) -> str:
    if certificate.issuer == certificate.subject:
        return "itself"
    names = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    text = str(names[0].value) if names else "a CA without a name"
    return repr("".join(c if c.isprintable() else "?" for c in text)[:64])


def _check_dates(certificate: x509.Certificate, now: datetime, what: str) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begin:
        raise CertificateError(
            f"{what}: not yet valid: valid from {when(begin)}, and it is {when(now)} here",
            hint="check the clock of this machine, and that of the CA",
        )
    if now > end:
        raise CertificateError(
            f"{what}: expired on {when(end)}, and it is {when(now)} here",
            hint="the CA makes its holder a new one with ca sign --renew; if the date here is wrong, set the clock",
        )


def _check_identity(identity: Identity, federation: str, roles: tuple[str, ...], name: str | None, what: str) -> None:
    if identity.federation != federation:
        raise CertificateError(
            f"{what}: other federation: it is for {identity.federation}, and this is {federation}",
            hint="use the certificate that was issued for this federation",
        )
    if identity.role not in roles:
        raise CertificateError(
            f"{what}: wrong role: it is {_with_article(identity.role)}'s ({identity}), "
            f"and {' or '.join(_with_article(r) + chr(39) + 's' for r in roles)} is needed",
            hint="each role has a certificate of its own",
        )
    if name is not None and identity.name != name:
        raise CertificateError(
            f"{what}: another's name: it is that of {identity}, and that of {describe(identity.role, name)} is needed",
            hint="each participant uses its own certificate and its own name",
        )


def _with_article(role: str) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"


def _check_profile(certificate: x509.Certificate, ca: x509.Certificate, role: str, now: datetime, what: str) -> None:
    """Chain, dates, key usages and extensions by the verifier of ``cryptography``; the extended key usage exactly."""
    builder = PolicyBuilder().store(Store([ca])).time(now).max_chain_depth(0)
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if list(usage) != [USAGES[role]]:
            _malformed(what, f"its extended key usage is not that of the role {role}")
        if role == COORDINATOR:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            subject = next(n for n in names if isinstance(n, x509.DNSName | x509.IPAddress))
            builder.build_server_verifier(subject).verify(certificate, [])
        else:
            builder.build_client_verifier().verify(certificate, [])
    except x509.ExtensionNotFound:
        _malformed(what, f"it has no extended key usage, so it fits every role where that of {role} is due")
    except VerificationError as error:
        _malformed(what, (str(error).splitlines() or [""])[0].split(" (encountered")[0][:160])
    except PARSE_ERRORS as error:
        _malformed(what, str(error)[:160])


def _malformed(what: str, why: str) -> NoReturn:
    raise CertificateError(f"{what}: malformed: {why}", hint="have it issued again with ca sign")


def _check_revocation(
    certificate: x509.Certificate, ca: x509.Certificate, crl_pem: bytes, what: str, identity: Identity
) -> None:
    revoked = revocation_of(load_crl(crl_pem, ca), certificate.serial_number)
    if revoked is not None:
        raise CertificateError(
            f"{what}: revoked: the certificate of {identity} (serial {certificate.serial_number:x}) "
            f"was revoked by the CA on {when(revoked.at)}, reason {revoked.reason}",
            hint=f"nobody is to trust {identity.role} {identity.name} until it has a certificate for a fresh key from "
            "the CA; ask whoever runs it",
        )
