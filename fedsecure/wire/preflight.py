"""Before a connection: who answers at the coordinator's address, and if it will not do, which of all faults it is.

gRPC tells a refused client no more than "Socket closed" and tries again for ever. So a plain TLS handshake goes first:
it names the cause and stops. Nothing is sent but the handshake.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from fedsecure.crypto.certificates import PeerIdentity, certificate_hosts, certificate_names, check_certificate, when
from fedsecure.crypto.names import COORDINATOR, is_address, is_host
from fedsecure.errors import CertificateError, ConfigError, WireError
from fedsecure.wire.clock import MAX_CLOCK_SKEW_MS, clock_skew
from fedsecure.wire.credentials import CALLERS, TlsFiles, own_identity

__all__ = ["MAX_CLOCK_SKEW_MS", "Finding", "clock_skew", "diagnose", "examine", "parse_address"]

#: How long to wait, after the handshake, for the peer to accept or refuse our certificate (seconds). A gRPC server
#: speaks first (RFC 9113, section 3.4), so this passes only with a peer that says nothing.
VERDICT_SECONDS = 2.0
#: After a silent hang-up we ask once more, this much later (seconds).
SECOND_TRY_SECONDS = 0.5
_PORT = re.compile(r"[1-9][0-9]{0,4}")
#: Codes of OpenSSL's verifier (X509_V_ERR_*).
_NOT_YET_VALID, _EXPIRED, _HOST_MISMATCH, _ADDRESS_MISMATCH = 9, 10, 62, 64
#: Alerts (RFC 8446, section 6.2), as OpenSSL spells them -> what they say about our certificate.
_ALERTS = {
    "UNKNOWN_CA": ("it does not know the CA that issued it", "it must have enrolled with the same consortium CA"),
    "CERTIFICATE_EXPIRED": ("expired by its clock", "compare both clocks, or get a new certificate from the CA"),
    "CERTIFICATE_REVOKED": ("revoked", "get a certificate for a fresh key from the CA"),
    "UNSUPPORTED_CERTIFICATE": ("of a kind that may not connect here", "use a node's or an analyst's certificate"),
    "CERTIFICATE_REQUIRED": ("none arrived, and one is required", "check the settings of the certificate"),
    "BAD_CERTIFICATE": ("bad certificate", "the coordinator's log has the reason"),
    "CERTIFICATE_UNKNOWN": ("for a reason it does not tell", "the coordinator's log has the reason"),
    "ACCESS_DENIED": ("access denied", "the coordinator's log has the reason"),
    "DECRYPT_ERROR": ("it could not verify our signature", "check that key and certificate belong together"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Who answered, and its certificate (PEM): what a channel can be pinned to."""

    identity: PeerIdentity
    certificate: bytes


def diagnose(address: str, files: TlsFiles, *, federation: str, now: datetime, timeout: float) -> PeerIdentity:
    """Who answers at ``address`` (``host:port``): the coordinator of ``federation``, and it takes our certificate.

    ``timeout``: seconds for all of it, save the resolving of the name, which the system bounds. Raises ``ConfigError``
    for a malformed address; ``WireError`` when trying again may help (name unknown, refused, no answer, closed); and
    ``CertificateError`` when it will not: our own files, plaintext, unknown CA, expired, not yet valid, host name
    mismatch, not a coordinator, other federation, revoked, or our certificate refused.
    """
    return examine(address, files, federation=federation, now=now, timeout=timeout).identity


def examine(address: str, files: TlsFiles, *, federation: str, now: datetime, timeout: float) -> Finding:
    """As ``diagnose``, with the peer's certificate."""
    own_identity(files, now=now, roles=CALLERS)
    peer = _Peer(address, *parse_address(address), files, federation, now, time.monotonic() + timeout)
    finding, accepted = peer.meet()
    if not accepted:  # a refusal, or a coordinator that is being restarted: ask once more
        time.sleep(min(peer.left(), SECOND_TRY_SECONDS))
        finding, accepted = peer.meet()
    if not accepted:
        raise CertificateError(
            f"our own certificate {files.cert} is refused by {address}: it closed the connection on seeing it",
            hint="its log has the reason: it may have another CA, or its clock may be wrong",
        )
    return finding


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[v6 address]:port``. Raises ``ConfigError``."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]") and ":" in host:
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not (is_address(host) or is_host(host)) or not _PORT.fullmatch(port) or int(port) > 65_535:
        raise ConfigError(
            f"address {address[:100]!r} is not of the form host:port",
            hint="as in coordinator.example.org:8443, without https://",
        )
    return host, int(port)


@dataclass(frozen=True, slots=True)
class _Peer:
    """One examination: what is asked, of whom, until when (monotonic seconds)."""

    address: str
    host: str
    port: int
    files: TlsFiles
    federation: str
    now: datetime
    deadline: float

    def left(self) -> float:
        """Seconds left; never zero, which would mean a non-blocking socket."""
        return max(self.deadline - time.monotonic(), 0.001)

    def meet(self) -> tuple[Finding, bool]:
        """Connect and look at each other once: what was found, and whether the peer did not hang up on us."""
        with self.connect() as raw:
            try:
                tls = self.context().wrap_socket(raw, server_hostname=self.host, suppress_ragged_eofs=False)
            except ssl.SSLCertVerificationError as error:
                self.refuse_certificate(error)
            except (ssl.SSLError, OSError) as error:
                self.refuse_handshake(error)
            with tls:
                certificate = ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True) or b"").encode()
                return Finding(self.check(certificate), certificate), self.accepted(tls)

    def connect(self) -> socket.socket:
        try:
            return socket.create_connection((self.host, self.port), timeout=self.left())
        except socket.gaierror as error:
            raise WireError(
                f"coordinator {self.address}: the name {self.host} cannot be resolved ({error.strerror})",
                hint="check the spelling, and the name service of this machine",
            ) from None
        except ConnectionRefusedError:
            raise WireError(
                f"coordinator {self.address}: connection refused: nothing listens on port {self.port}",
                hint="check that the coordinator runs, its address and its port",
            ) from None
        except TimeoutError:
            raise WireError(
                f"coordinator {self.address}: no answer to the connection in time",
                hint="a firewall between may drop it; outgoing connections to this port must be allowed",
            ) from None
        except OSError as error:
            raise WireError(
                f"coordinator {self.address}: cannot be reached: {error.strerror or error}", hint="check the network"
            ) from None

    def context(self) -> ssl.SSLContext:
        """TLS 1.2 or later; the peer's chain and host name checked; our certificate shown."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        try:
            context.load_verify_locations(cadata=self.files.ca_pem().decode("ascii"))
            context.load_cert_chain(self.files.cert, self.files.key, password=lambda: b"")
        except (ssl.SSLError, OSError, UnicodeDecodeError) as error:
            raise CertificateError(f"our own TLS files cannot be used: {error}") from None
        return context

    def check(self, certificate: bytes) -> PeerIdentity:
        return check_certificate(
            certificate,
            ca_pem=self.files.ca_pem(),
            federation=self.federation,
            role=COORDINATOR,
            name=None,
            now=self.now,
            crl_pem=self.files.crl_pem(),
            what=f"certificate of {self.address}",
        )

    def refuse_certificate(self, error: ssl.SSLCertVerificationError) -> NoReturn:
        """Say what is wrong with the peer's certificate: by looking at it, or else by the verifier's code."""
        certificate = self.look()
        if certificate is not None:
            self.check(certificate)
        if error.verify_code in (_HOST_MISMATCH, _ADDRESS_MISMATCH):
            names = ", ".join(certificate_names(certificate)) if certificate is not None else "not known"
            hosts = " or ".join(certificate_hosts(certificate)) if certificate is not None else ""
            raise CertificateError(
                f"certificate of {self.address}: hostname mismatch: it is not for {self.host}, but for: {names}",
                hint=(f"dial {hosts}, or " if hosts else "")
                + f"have the coordinator's certificate issued for {self.host} as well",
            )
        if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            fault = "expired" if error.verify_code == _EXPIRED else "not yet valid"
            raise CertificateError(
                f"certificate of {self.address}: {fault} by the clock of this machine, though not at {when(self.now)}",
                hint="check the clock of this machine",
            )
        raise CertificateError(f"certificate of {self.address}: refused: {error.verify_message}")

    def look(self) -> bytes | None:
        """The peer's certificate by a second handshake that trusts nobody, shows no certificate of ours, and sends
        nothing after it; ``None`` when the peer does not show one that way."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # nothing is sent or believed: the certificate is only described
        context.set_alpn_protocols(["h2"])
        try:
            with (
                socket.create_connection((self.host, self.port), timeout=self.left()) as raw,
                context.wrap_socket(raw, server_hostname=self.host) as tls,
            ):
                der = tls.getpeercert(binary_form=True)
        except (ssl.SSLError, OSError):
            return None
        return ssl.DER_cert_to_PEM_cert(der).encode() if der else None

    def refuse_handshake(self, error: OSError) -> NoReturn:
        """The handshake ended without a connection, and not because of the peer's certificate."""
        self.refuse_alert(error)
        if isinstance(error, TimeoutError):
            raise WireError(
                f"coordinator {self.address}: no answer to the TLS handshake in time",
                hint="is it the coordinator's port? it may speak plaintext, or another protocol",
            ) from None
        if isinstance(error, ssl.SSLEOFError | ConnectionError):
            raise WireError(
                f"coordinator {self.address}: closed the connection during the TLS handshake",
                hint="is it the coordinator's port? a proxy or firewall between may also do this",
            ) from None
        reason = getattr(error, "reason", None) or ""
        if any(
            word in reason
            for word in ("WRONG_VERSION", "HTTP_REQUEST", "RECORD_LAYER", "PACKET_LENGTH", "UNKNOWN_PROTO")
        ):
            raise CertificateError(
                f"coordinator {self.address}: plaintext: what answers there does not speak TLS",
                hint="check address and port; there is no way to connect without TLS",
            ) from None
        raise CertificateError(f"coordinator {self.address}: TLS handshake failed: {reason or error}") from None

    def refuse_alert(self, error: OSError) -> None:
        """Raise ``CertificateError`` when ``error`` is an alert of the peer's about our certificate."""
        reason = getattr(error, "reason", None) or ""
        for word, (meaning, hint) in _ALERTS.items():
            if "ALERT" in reason and word in reason:
                raise CertificateError(
                    f"our own certificate {self.files.cert} is refused by {self.address}: {meaning}", hint=hint
                ) from None

    def accepted(self, tls: ssl.SSLSocket) -> bool:
        """Whether the peer keeps the connection; an alert raises ``CertificateError``. In TLS 1.3 the peer judges our
        certificate only after our side of the handshake is done."""
        tls.settimeout(min(self.left(), VERDICT_SECONDS))
        try:
            return bool(tls.recv(1))
        except TimeoutError:
            return True
        except (ssl.SSLError, OSError) as error:
            self.refuse_alert(error)
            return False
