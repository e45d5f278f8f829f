"""Every peer that must not get in does not, and is told which fault it was: through real gRPC and TLS on loopback."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import socket
import ssl
import subprocess
import threading
from datetime import timedelta

import grpc
import pytest
from cryptography.hazmat.primitives import serialization

from fedsecure.crypto import authority
from fedsecure.errors import CertificateError, ConfigError, WireError
from fedsecure.wire.credentials import TlsFiles, channel_credentials, own_identity, server_credentials
from fedsecure.wire.preflight import diagnose, examine, parse_address

TIMEOUT = 10.0


def look(federation, address, files, *, timeout=TIMEOUT, now=None, name="heart"):
    return diagnose(address, files, federation=name, now=now or federation.now, timeout=timeout)


def refused(federation, address, files, fault, error=CertificateError, **how):
    with pytest.raises(error, match=fault) as caught:
        look(federation, address, files, **how)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


@contextlib.contextmanager
def peer(handle):
    """A TCP server of one thread whose every connection is given to ``handle``; yields its port."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)

        def run() -> None:
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(5)
                        handle(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stop.set()
            thread.join(10)


def tls_server(files: TlsFiles, *, clients_ca=None, version=None):
    """A handler that speaks TLS by OpenSSL, which sends alerts, unlike gRPC's server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(clients_ca or files.ca)
    context.set_alpn_protocols(["h2"])
    if version:
        context.maximum_version = version
    if files.crl:
        context.load_verify_locations(files.crl)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    def handle(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
            tls.sendall(b"\0\0\0\4\0\0\0\0\0")  # an empty SETTINGS frame
            tls.recv(1)

    return handle


# --- the good case -------------------------------------------------------------------------------------------------


def test_a_node_and_its_coordinator(federation, running, node, hello):
    found = examine(running.address, node, federation="heart", now=federation.now, timeout=TIMEOUT)
    assert (found.identity.role, found.identity.federation) == ("coordinator", "heart")
    for pinned in (None, found.certificate):
        reply = hello(running.port, channel_credentials(node, now=federation.now, pinned=pinned))
        assert reply.federation == "heart"
    assert running.servicer.served == ["charite", "charite"]
    assert look(federation, f"127.0.0.1:{running.port}", node).name == "coordinator"


def test_a_pinned_channel_takes_no_other_certificate(federation, serve, node, hello):
    """What the preflight saw binds the connection: another coordinator certificate of the same CA does not do."""
    old = federation.coordinator()
    running = serve(server_credentials(federation.coordinator(folder="renewed"), now=federation.now))
    reply = hello(running.port, channel_credentials(node, now=federation.now, pinned=old.cert.read_bytes()))
    assert reply.code() == grpc.StatusCode.UNAVAILABLE
    assert running.servicer.served == []


# --- callers that the coordinator refuses --------------------------------------------------------------------------


def test_no_certificate_no_byte(federation, running, hello):
    reply = hello(running.port, grpc.ssl_channel_credentials((federation.ca / "ca.crt").read_bytes()))
    assert reply.code() == grpc.StatusCode.UNAVAILABLE
    assert running.servicer.served == []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=str(federation.ca / "ca.crt"))
        context.maximum_version = version
        context.set_alpn_protocols(["h2"])
        got = b""
        with (
            socket.create_connection(("127.0.0.1", running.port), 5) as raw,
            contextlib.suppress(ssl.SSLError, ConnectionError),
            context.wrap_socket(raw, server_hostname="localhost") as tls,
        ):
            got = tls.recv(1)
        assert got == b""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssl_s_client_gets_no_application_byte(federation, running, version):
    done = subprocess.run(
        [
            "openssl", "s_client", "-connect", f"127.0.0.1:{running.port}", "-alpn", "h2", version, "-quiet",
            "-CAfile", str(federation.ca / "ca.crt"),
        ],
        input=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout == b""
    assert running.servicer.served == []


def test_old_tls_is_refused(running):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", running.port), 5) as raw,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(raw, server_hostname="localhost")


def test_a_strangers_certificate_does_not_pass_the_handshake(federation, strangers, running, hello, unchecked_channel):
    stranger = strangers.enrol("node", "charite")
    reply = hello(running.port, unchecked_channel(stranger, federation.ca / "ca.crt"))
    assert reply.code() == grpc.StatusCode.UNAVAILABLE
    assert running.servicer.served == []


def test_an_expired_certificate_does_not_pass_the_handshake(federation, running, hello, unchecked_channel):
    expired = federation.enrol("node", "charite", at=federation.now - timedelta(days=100), days=10)
    assert hello(running.port, unchecked_channel(expired)).code() == grpc.StatusCode.UNAVAILABLE
    assert running.servicer.served == []


def test_a_coordinators_certificate_is_no_clients(federation, running, hello, unchecked_channel):
    other = federation.coordinator(folder="second")
    assert hello(running.port, unchecked_channel(other)).code() == grpc.StatusCode.UNAVAILABLE
    with pytest.raises(CertificateError, match="wrong role: it is a coordinator's"):
        channel_credentials(other, now=federation.now)
    assert running.servicer.served == []


def test_a_revoked_node_is_told_so(federation, running, node, hello):
    authority.revoke(federation.ca, "charite", passphrase=None, now=federation.now, reason="key-compromise")
    reply = hello(running.port, channel_credentials(node, now=federation.now))
    assert reply.code() == grpc.StatusCode.UNAUTHENTICATED
    assert "ipv4:" not in reply.details()
    assert reply.details().startswith("certificate of the caller: revoked: ")
    assert "revoked: the certificate of node charite" in reply.details()


def test_a_node_that_speaks_as_another_is_told_so(federation, running, node, hello):
    reply = hello(running.port, channel_credentials(node, now=federation.now), node_id="mayo")
    assert reply.code() == grpc.StatusCode.UNAUTHENTICATED
    assert "speaks as another: the certificate is that of node charite" in reply.details()
    assert "node mayo" in reply.details()


def test_an_analyst_is_no_node(federation, running, hello):
    analyst = federation.enrol("analyst", "charite")
    reply = hello(running.port, channel_credentials(analyst, now=federation.now))
    assert "speaks as another: the certificate is that of analyst charite" in reply.details()


def test_a_plaintext_caller(running, hello):
    assert hello(running.port, None).code() == grpc.StatusCode.UNAVAILABLE
    assert running.servicer.served == []


def test_a_plaintext_connection_has_no_identity(serve, hello):
    """If somebody ever serves without TLS, the servicer still lets nobody in."""
    reply = hello(serve(None).port, None)
    assert reply.code() == grpc.StatusCode.UNAUTHENTICATED
    assert "speaks plaintext" in reply.details()


# --- coordinators that the node refuses ----------------------------------------------------------------------------


def test_nobody_there(federation, node):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    refused(federation, f"localhost:{port}", node, f"connection refused: nothing listens on port {port}", WireError)


def test_an_unknown_name(federation, node):
    refused(federation, "nobody.invalid:8443", node, "the name nobody.invalid cannot be resolved", WireError)


def test_a_peer_that_says_nothing(federation, node):
    with peer(lambda connection: connection.recv(100_000) and connection.recv(1)) as port:
        refused(federation, f"localhost:{port}", node, "no answer to the TLS handshake in time", WireError, timeout=0.5)


def test_a_peer_that_hangs_up(federation, node):
    with peer(lambda connection: connection.recv(100_000)) as port:
        refused(federation, f"localhost:{port}", node, "closed the connection during the TLS handshake", WireError)


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"220 mail ESMTP\r\n", b"\0" * 64]
)
def test_a_plaintext_peer(federation, node, greeting):
    with peer(lambda connection: (connection.sendall(greeting), connection.recv(100_000))) as port:
        refused(federation, f"localhost:{port}", node, "plaintext: what answers there does not speak TLS")


def test_a_plaintext_grpc_server(federation, node, serve):
    refused(federation, serve(None).address, node, "plaintext|closed the connection", (CertificateError, WireError))


def test_a_coordinator_of_an_unknown_ca(federation, strangers, node, serve):
    running = serve(server_credentials(strangers.coordinator(), now=federation.now))
    error = refused(federation, running.address, node, "unknown CA: issued by 'heart consortium CA'")
    assert federation.authority.fingerprint in str(error)


def test_a_self_signed_server(federation, node, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "5",
            "-subj", "/CN=localhost", "-keyout", str(tmp_path / "k"), "-out", str(tmp_path / "c"),
        ],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    with peer(tls_server(TlsFiles(tmp_path / "k", tmp_path / "c", node.ca))) as port:
        refused(federation, f"localhost:{port}", node, "unknown CA: issued by itself")


def test_an_expired_coordinator(federation, node, serve, unchecked_server):
    old = federation.coordinator(at=federation.now - timedelta(days=100), days=10)
    with pytest.raises(CertificateError, match="our own certificate .*tls.crt: expired on"):
        server_credentials(old, now=federation.now)
    error = refused(federation, serve(unchecked_server(old)).address, node, "certificate of localhost:.*: expired on")
    assert "clock" in error.hint


def test_a_coordinator_that_is_not_valid_yet(federation, node, serve, unchecked_server):
    early = federation.coordinator(at=federation.now + timedelta(days=2))
    error = refused(federation, serve(unchecked_server(early)).address, node, "not yet valid: valid from")
    assert "clock" in error.hint


def test_a_clock_that_differs_from_the_machines(federation, running, node):
    """The time given decides, whatever the machine's clock says."""
    refused(
        federation, running.address, node, "our own certificate .*: expired", now=federation.now + timedelta(days=91)
    )


def test_a_hostname_mismatch_prints_the_names(federation, node, serve):
    running = serve(server_credentials(federation.coordinator(("c.example.org", "10.0.0.1")), now=federation.now))
    for host in ("localhost", "127.0.0.1"):
        error = refused(
            federation, f"{host}:{running.port}", node, f"hostname mismatch: it is not for {host}, but for: "
        )
        assert "spiffe://heart/coordinator, c.example.org, 10.0.0.1" in str(error)
        assert error.hint.startswith("dial c.example.org or 10.0.0.1, or have")
        assert "spiffe" not in error.hint


def test_a_nodes_certificate_cannot_serve(federation, node, serve, unchecked_server, hello):
    mayo = federation.enrol("node", "mayo")
    with pytest.raises(CertificateError, match="wrong role: it is a node's"):
        server_credentials(mayo, now=federation.now)
    running = serve(unchecked_server(mayo))
    refused(
        federation, running.address, node, r"wrong role: it is a node's \(node mayo\), and a coordinator's is needed"
    )
    assert hello(running.port, channel_credentials(node, now=federation.now)).code() == grpc.StatusCode.UNAVAILABLE
    assert running.servicer.served == []


def test_another_federation(federation, running, node):
    refused(federation, running.address, node, "other federation: it is for heart, and this is lung", name="lung")


def test_a_revoked_coordinator(federation, running, node):
    authority.revoke(federation.ca, "coordinator", passphrase=None, now=federation.now)
    look(federation, running.address, node)  # as long as the list has not reached the node
    informed = dataclasses.replace(node, crl=federation.crl)
    refused(federation, running.address, informed, "revoked: the certificate of the coordinator")


# --- our own certificate, refused by the coordinator ---------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_coordinator_of_another_ca_says_unknown_ca(federation, strangers, node, version):
    handle = tls_server(federation.coordinator(), clients_ca=strangers.ca / "ca.crt", version=version)
    with peer(handle) as port:
        refused(
            federation, f"localhost:{port}", node, "our own certificate .* is refused by .*: it does not know the CA"
        )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_coordinator_that_knows_of_the_revocation_says_so(federation, node, version):
    authority.revoke(federation.ca, "charite", passphrase=None, now=federation.now)
    informed = dataclasses.replace(federation.coordinator(), crl=federation.crl)
    with peer(tls_server(informed, version=version)) as port:
        refused(federation, f"localhost:{port}", node, "our own certificate .* is refused by .*: revoked")


def test_a_coordinator_whose_clock_is_wrong_says_expired(federation):
    """Our clock, given here, says that the certificate holds; the coordinator's says that it has expired."""
    then = federation.now - timedelta(days=95)
    old = federation.enrol("node", "charite", at=then, days=90)
    running = federation.coordinator(at=then, days=200)
    with peer(tls_server(running)) as port:
        refused(federation, f"localhost:{port}", old, "is refused by .*: expired by its clock", now=then)


def test_a_grpc_coordinator_of_another_ca_hangs_up(federation, strangers, node, serve):
    """gRPC's server sends no alert: the message says that it closed the connection on seeing our certificate."""
    files = dataclasses.replace(federation.coordinator(), ca=strangers.ca / "ca.crt")
    pair = (files.key.read_bytes(), files.cert.read_bytes())
    running = serve(grpc.ssl_server_credentials([pair], files.ca.read_bytes(), require_client_auth=True))
    refused(federation, running.address, node, "is refused by .*: it closed the connection on seeing it")


# --- our own files -------------------------------------------------------------------------------------------------


def test_our_own_expired_certificate_stops_before_connecting(federation):
    expired = federation.enrol("node", "charite", at=federation.now - timedelta(days=100), days=10)
    refused(federation, "nobody.invalid:1", expired, "our own certificate .*tls.crt: expired on")
    with pytest.raises(CertificateError, match="our own certificate .*: expired on"):
        channel_credentials(expired, now=federation.now)


def test_our_own_revoked_certificate_stops_before_connecting(federation, node):
    authority.revoke(federation.ca, "charite", passphrase=None, now=federation.now)
    informed = dataclasses.replace(node, crl=federation.crl)
    refused(federation, "nobody.invalid:1", informed, "our own certificate .*: revoked")


def test_a_loose_key_stops_before_connecting(federation, node):
    node.key.chmod(0o640)
    for use in (channel_credentials, own_identity):
        with pytest.raises(CertificateError, match="mode 0640") as caught:
            use(node, now=federation.now)
        assert caught.value.hint == f"chmod 600 {node.key}"
    refused(federation, "nobody.invalid:1", node, "mode 0640")


def test_an_encrypted_tls_key_is_named(federation, node):
    key = serialization.load_pem_private_key(node.key.read_bytes(), None)
    protection = serialization.BestAvailableEncryption(b"passphrase")
    node.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection))
    refused(federation, "nobody.invalid:1", node, "tls.key: is encrypted")


def test_files_that_do_not_belong_together(federation, strangers, node):
    mayo = federation.enrol("node", "mayo")
    stranger = strangers.enrol("node", "charite")
    for files, fault in (
        (dataclasses.replace(node, key=mayo.key), "is for another key than"),
        (dataclasses.replace(node, ca=stranger.ca), "our own certificate .*: unknown CA"),
        (dataclasses.replace(node, ca=node.cert), "is the certificate of a participant, not of a CA"),
        (dataclasses.replace(node, cert=node.key), "holds a private key where a certificate is due"),
        (dataclasses.replace(node, crl=strangers.crl), "is not signed by the consortium CA"),
        (dataclasses.replace(node, crl=node.ca.with_name("no.pem")), "no.pem: no such file"),
    ):
        refused(federation, "nobody.invalid:1", files, fault)


@pytest.mark.parametrize(
    "address",
    [
        "", "localhost", ":8443", "localhost:", "localhost:0", "localhost:65536", "localhost:99999999999", "https://a:1",
        "a b:1", "::1:8443", "[::1]", "[localhost]:1", "localhost:-1", "localhost:٣", "*.a:1", "a/b:1", "300.1.1.1:1",
    ],
)  # fmt: skip
def test_malformed_addresses(address):
    with pytest.raises(ConfigError, match="is not of the form host:port"):
        parse_address(address)


def test_addresses():
    assert parse_address("c.example.org:8443") == ("c.example.org", 8443)
    assert parse_address("[::1]:65535") == ("::1", 65535)
    assert parse_address("10.0.0.1:1") == ("10.0.0.1", 1)
