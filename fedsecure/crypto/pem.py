"""Certificates, requests and keys in and out of PEM, every fault named; one form of fingerprint everywhere."""

from __future__ import annotations

import ipaddress
import re

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedsecure.crypto.names import Identity, check_hosts, is_address
from fedsecure.errors import CertificateError, ConfigError

__all__ = [
    "PARSE_ERRORS",
    "ec_public_key",
    "fingerprint",
    "key_fingerprint",
    "load_certificate",
    "load_ec_key",
    "load_request",
    "private_pem",
    "san",
    "stated_hosts",
    "stated_identity",
]

#: What parsing untrusted certificates can raise, some of it only when an extension or key is first looked at.
PARSE_ERRORS = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    x509.InvalidVersion,
)
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")


def load_certificate(pem: bytes, what: str) -> x509.Certificate:
    """The one certificate in ``pem``. Raises ``CertificateError``: none, several, or a damaged one."""
    _expect_block(pem, "CERTIFICATE", what)
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        _ = certificate.extensions, certificate.not_valid_after_utc, certificate.not_valid_before_utc
    except PARSE_ERRORS as error:
        raise CertificateError(f"{what}: malformed: not a readable certificate ({_reason(error)})") from None
    return certificate


def load_request(pem: bytes, what: str) -> x509.CertificateSigningRequest:
    """The one certificate request in ``pem``, its proof of possession checked: it is signed by the key it asks for.

    Raises ``CertificateError``, naming ``what``.
    """
    _expect_block(pem, "CERTIFICATE REQUEST", what)
    try:
        request = x509.load_pem_x509_csr(pem)
        _ = request.extensions
        proven = request.is_signature_valid
    except PARSE_ERRORS as error:
        raise CertificateError(f"{what}: malformed: not a readable certificate request ({_reason(error)})") from None
    if not proven:
        raise CertificateError(
            f"{what}: its signature is not by the key that it asks a certificate for",
            hint="it was changed on the way, or the asker does not hold that key",
        )
    return request


def load_ec_key(pem: bytes, what: str, password: bytes | None = None) -> ec.EllipticCurvePrivateKey:
    """An ECDSA P-256 private key. Raises ``CertificateError``: damaged, wrong kind, wrong password."""
    if password is None and b"ENCRYPTED" in pem:
        raise CertificateError(f"{what}: is encrypted, and a daemon cannot ask for its passphrase", hint="decrypt it")
    try:
        key = serialization.load_pem_private_key(pem, password)
    except PARSE_ERRORS:
        fault = "damaged, or not a private key" if password is None else "wrong passphrase, or a damaged file"
        raise CertificateError(f"{what}: {fault}", hint="try again, or restore it from a backup") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError(f"{what}: wrong key type: not an ECDSA P-256 key")
    return key


def private_pem(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    """The key as PKCS#8 PEM, encrypted when there is a passphrase."""
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        protection = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


def ec_public_key(holder: x509.Certificate | x509.CertificateSigningRequest, what: str) -> ec.EllipticCurvePublicKey:
    """The ECDSA P-256 key of a certificate or request. Raises ``CertificateError`` for another kind."""
    try:
        key = holder.public_key()
    except PARSE_ERRORS as error:
        raise CertificateError(f"{what}: malformed: its key cannot be read ({_reason(error)})") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError(f"{what}: wrong key type: not an ECDSA P-256 key", hint="make it with this software")
    return key


def fingerprint(pem: bytes) -> str:
    """``SHA256:ab:cd…`` over the DER form of the certificate or certificate request in ``pem``.

    Raises ``CertificateError`` when it is neither.
    """
    match = _BLOCK.search(pem)
    if match and match[1] == b"CERTIFICATE REQUEST":
        return _sha256(load_request(pem, "certificate request").public_bytes(serialization.Encoding.DER))
    return _sha256(load_certificate(pem, "certificate").public_bytes(serialization.Encoding.DER))


def key_fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """``SHA256:ab:cd…`` over the DER form of a public key (SubjectPublicKeyInfo, RFC 5280, section 4.1.2.7)."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _sha256(der)


def san(identity: Identity, hosts: tuple[str, ...]) -> x509.SubjectAlternativeName:
    """The subject alternative name that states ``identity`` and a coordinator's ``hosts``. Raises ``ConfigError``."""
    check_hosts(identity.role, hosts)
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri)]
    for host in hosts:
        if is_address(host):
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        else:
            names.append(x509.DNSName(host.rstrip(".").lower()))
    return x509.SubjectAlternativeName(names)


def stated_identity(holder: x509.Certificate | x509.CertificateSigningRequest, what: str) -> Identity:
    """The identity that a certificate or request states. Raises ``CertificateError``, naming ``what``, unless it states
    exactly one, and host names only with the role coordinator."""
    names = _names(holder)
    uris = [n.value for n in names if isinstance(n, x509.UniformResourceIdentifier)]
    if len(uris) != 1:
        raise CertificateError(f"{what}: malformed: it states {len(uris)} identities where one is due")
    try:
        identity = Identity.parse(uris[0])
        hosts = stated_hosts(holder)
        check_hosts(identity.role, hosts)
    except (CertificateError, ConfigError) as error:
        raise CertificateError(f"{what}: {error}", hint=error.hint) from None
    if len(hosts) + 1 != len(names):
        raise CertificateError(f"{what}: malformed: it states names of another kind than URI, DNS and IP address")
    return identity


def stated_hosts(holder: x509.Certificate | x509.CertificateSigningRequest) -> tuple[str, ...]:
    """The host names and addresses that a certificate or request states, in its order."""
    return tuple(str(n.value) for n in _names(holder) if isinstance(n, x509.DNSName | x509.IPAddress))


def _names(holder: x509.Certificate | x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    try:
        return list(holder.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _expect_block(pem: bytes, kind: str, what: str) -> None:
    """Say what a PEM file holds when it is not one block of ``kind``: the wrong file is the common slip."""
    kinds = [match.decode() for match in _BLOCK.findall(pem)]
    if kinds == [kind]:
        return
    if any("PRIVATE KEY" in k for k in kinds):
        raise CertificateError(
            f"{what}: holds a private key where a {kind.lower()} is due", hint="a private key is never handed to anyone"
        )
    found = " and ".join(k.lower() for k in kinds[:3]) if kinds else "nothing in PEM form"
    raise CertificateError(f"{what}: malformed: one {kind.lower()} is due, but it holds {found}", hint="check the path")


def _reason(error: BaseException) -> str:
    """A library's reason in words, without its own types, advice and addresses."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    if "MalformedFraming" in first or "PEM" in first:
        return "the text between its BEGIN and END lines is damaged"
    if "asn1" in first.lower() or "ParseError" in first:
        return "its content is damaged"
    return first.split(" See http")[0].split(" https://")[0].split(" http://")[0].rstrip(" .:")[:160]


def _sha256(data: bytes) -> str:
    digest = hashes.Hash(hashes.SHA256())
    digest.update(data)
    return "SHA256:" + digest.finalize().hex(":")
