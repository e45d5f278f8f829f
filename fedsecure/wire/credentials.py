"""Mutual TLS for gRPC: what both ends are configured with, and who a caller is.

gRPC checks chain, dates, extended key usage and host name in the handshake; it knows nothing of federations, roles and
revocation lists. Those are checked here, for every call on the coordinator's side by ``peer_identity``, and before a
node or an analyst connects by the preflight, whose findings ``channel_credentials(pinned=…)`` binds to the connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import cast

import grpc

from fedsecure.crypto.certificates import PeerIdentity, check_certificate
from fedsecure.crypto.enrolment import check_key_pair
from fedsecure.crypto.keyfiles import present, read_public, read_secret
from fedsecure.crypto.names import ROLES, describe
from fedsecure.errors import CertificateError, ConfigError

__all__ = [
    "CALLERS_CERTIFICATE",
    "TlsFiles",
    "channel_credentials",
    "own_identity",
    "own_participant",
    "peer_identity",
    "server_credentials",
]

#: Who may call a coordinator.
CALLERS = ("node", "analyst")
#: How a fault of a caller's certificate begins; the caller reads ``our own certificate`` in its place.
CALLERS_CERTIFICATE = "certificate of the caller"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where a participant's key, certificate, CA certificate and (when it has one) revocation list lie."""

    key: Path
    cert: Path
    ca: Path
    crl: Path | None = None

    @classmethod
    def in_folder(cls, folder: Path) -> TlsFiles:
        """The files as enrolment names them; ``crl.pem`` counts when it is there."""
        crl = folder / "crl.pem"
        return cls(folder / "tls.key", folder / "tls.crt", folder / "ca.crt", crl if present(crl) else None)

    def ca_pem(self) -> bytes:
        """The CA certificate. Raises ``CertificateError``."""
        return read_public(self.ca, "CA certificate")

    def crl_pem(self) -> bytes | None:
        """The revocation list as it is now, or ``None`` when none is configured. Raises ``CertificateError``."""
        return None if self.crl is None else read_public(self.crl, "revocation list")


def own_identity(files: TlsFiles, *, now: datetime, roles: tuple[str, ...] = ROLES) -> PeerIdentity:
    """Check our own key and certificate as our peers will: permissions, key, chain, dates, role, revocation.

    Raises ``CertificateError`` naming the file and the fault. Trying to connect before it is mended is of no use.
    """
    own = check_key_pair(
        read_secret(files.key, "TLS key"),
        read_public(files.cert, "certificate"),
        key_name=str(files.key),
        cert_name=str(files.cert),
    )
    return check_certificate(
        read_public(files.cert, "certificate"),
        ca_pem=files.ca_pem(),
        federation=own.federation,
        role=roles,
        name=None,
        now=now,
        crl_pem=files.crl_pem(),
        what=f"our own certificate {files.cert}",
    )


def own_participant(
    files: TlsFiles, *, role: str, name: str, federation: str, now: datetime, where: str
) -> PeerIdentity:
    """As ``own_identity``, and the certificate is that of the participant whom the settings name.

    ``where``: the settings' file. Raises ``ConfigError`` when they are of two minds: nobody is dialled or served then.
    """
    own = own_identity(files, now=now, roles=(role,))
    if (own.federation, own.name) != (federation, name):
        raise ConfigError(
            f"the certificate is that of {describe(own.role, own.name)} of {own.federation}, "
            f"{where} says {describe(role, name)} of {federation}",
            hint=f"correct {where}, or enrol this {role}",
        )
    return own


def server_credentials(files: TlsFiles, *, now: datetime) -> grpc.ServerCredentials:
    """Credentials of a coordinator's server; a client without a certificate of our CA does not get past the handshake.

    Raises ``CertificateError`` when our own key or certificate is not in order at ``now``.
    """
    own_identity(files, now=now, roles=("coordinator",))
    pair = (read_secret(files.key, "TLS key"), read_public(files.cert, "certificate"))
    return grpc.ssl_server_credentials([pair], root_certificates=files.ca_pem(), require_client_auth=True)


def channel_credentials(files: TlsFiles, *, now: datetime, pinned: bytes | None = None) -> grpc.ChannelCredentials:
    """Credentials of a node's or analyst's channel.

    ``pinned``: the coordinator's certificate (PEM) that the preflight accepted; the connection is then made with the
    holder of exactly that certificate or not at all. Raises ``CertificateError`` when our own key or certificate is
    not in order at ``now``.
    """
    own_identity(files, now=now, roles=CALLERS)
    return grpc.ssl_channel_credentials(
        root_certificates=files.ca_pem() if pinned is None else pinned,
        private_key=read_secret(files.key, "TLS key"),
        certificate_chain=read_public(files.cert, "certificate"),
    )


def peer_identity(
    context: grpc.ServicerContext, *, federation: str, ca_pem: bytes, crl_pem: bytes | None, now: datetime
) -> PeerIdentity:
    """Who makes this call, by the certificate of the connection. ``PeerIdentity.require`` then binds the message to it.

    Raises ``CertificateError`` naming the reason: no TLS, no certificate, unknown CA, expired, not yet valid, other
    federation, wrong role, revoked, malformed. It names no address: the caller, who is told, has no use for it.
    """
    auth = cast("Mapping[str, Sequence[bytes]]", context.auth_context())
    if list(auth.get("transport_security_type", ())) != [b"ssl"]:
        raise CertificateError("the caller speaks plaintext", hint="connections are mutual TLS only")
    certificates = auth.get("x509_pem_cert", ())
    if len(certificates) != 1:
        raise CertificateError("the caller shows no certificate", hint="enrol with the consortium CA")
    return check_certificate(
        bytes(certificates[0]),
        ca_pem=ca_pem,
        federation=federation,
        role=CALLERS,
        name=None,
        now=now,
        crl_pem=crl_pem,
        what=CALLERS_CERTIFICATE,
    )
