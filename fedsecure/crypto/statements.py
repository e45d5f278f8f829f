"""Statements: a body signed with the key of a certificate of the federation, which travels with it.

What is signed is ``"fedsecure-statement-1" 0x00 label 0x00 body``, by ECDSA P-256 with SHA-256 in DER (RFC 5480; FIPS
186-5): a signature for one label never verifies under another. The key is the one that TLS uses, whose own signatures
are over ``"TLS 1.3, …"`` after 64 spaces (RFC 8446, section 4.4.3), so neither can stand for the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from fedsecure.crypto.certificates import PeerIdentity, check_certificate
from fedsecure.crypto.enrolment import check_key_pair
from fedsecure.crypto.pem import ec_public_key, load_certificate, load_ec_key
from fedsecure.errors import CertificateError, RemoteProtocolError

__all__ = ["Signer", "Statement", "check_statement"]

_PREFIX = b"fedsecure-statement-1"
_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
#: No certificate of ours, and no DER form of a P-256 signature, comes near these sizes (bytes).
MAX_CERTIFICATE_BYTES = 16 << 10
MAX_SIGNATURE_BYTES = 80


@dataclass(frozen=True, slots=True)
class Statement:
    """Who says what: ``certificate`` is PEM, ``signature`` DER. Unchecked until ``check_statement``."""

    label: str
    body: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    signature: bytes = field(repr=False)


class Signer:
    """The key and the certificate of a participant, for signing statements; the key never shows itself.

    Raises ``CertificateError`` when either is damaged, or they do not belong together.
    """

    __slots__ = ("_certificate", "_key", "_who")

    def __init__(self, key_pem: bytes, cert_pem: bytes) -> None:
        self._who = check_key_pair(key_pem, cert_pem, key_name="TLS key", cert_name="certificate")
        self._key = load_ec_key(key_pem, "TLS key")
        self._certificate = cert_pem

    def sign(self, label: str, body: bytes) -> Statement:
        """``body`` signed for the purpose ``label``. Raises ``ValueError`` for a malformed label."""
        signature = self._key.sign(_signed(label, body), ec.ECDSA(hashes.SHA256()))
        return Statement(label, body, self._certificate, signature)

    def __repr__(self) -> str:
        return f"Signer({self._who})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a signer does not leave its process")


def check_statement(
    statement: Statement,
    label: str,
    *,
    ca_pem: bytes,
    crl_pem: bytes | None,
    federation: str,
    role: str,
    name: str | None,
    now: datetime,
) -> PeerIdentity:
    """Return who signed ``statement`` for the purpose ``label``.

    ``name``: whose it must be, ``None`` for anybody's of that ``role``. ``now``: with a time zone. Raises
    ``RemoteProtocolError`` for another label or absurd sizes, and ``CertificateError`` naming the fault: of the
    certificate (see ``check_certificate``), or a signature that is not by its key over these bytes.
    """
    what = f"certificate of a {label} statement"
    if statement.label != label:
        raise RemoteProtocolError(f"a statement has label {statement.label[:64]!r} where {label!r} is due")
    if len(statement.certificate) > MAX_CERTIFICATE_BYTES or len(statement.signature) > MAX_SIGNATURE_BYTES:
        raise RemoteProtocolError(f"a {label} statement has a certificate or signature of absurd size")
    peer = check_certificate(
        statement.certificate,
        ca_pem=ca_pem,
        federation=federation,
        role=role,
        name=name,
        now=now,
        crl_pem=crl_pem,
        what=what,
    )
    key = ec_public_key(load_certificate(statement.certificate, what), what)
    try:
        key.verify(statement.signature, _signed(label, statement.body), ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        raise CertificateError(
            f"the signature of a {label} statement is not by the key of {peer.role} {peer.name} over these bytes",
            hint="the statement was changed, or another key signed it",
        ) from None
    return peer


def _signed(label: str, body: bytes) -> bytes:
    if not _LABEL.fullmatch(label):
        raise ValueError(f"statement label {label[:80]!r} is malformed")
    return b"\0".join((_PREFIX, label.encode("ascii"), body))
