"""Every wrong identity is refused by the real daemons, which stop with exit code 6 and name which fault it was."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fedsecure.crypto import authority
from fedsecure.errors import CertificateError
from fedsecure.wire.dialling import dial
from fedsecure_node.link.client import CoordinatorClient
from fedsecure_node.link.connect import tls_files
from fedsecure_node.settings import load_settings

sys.path.insert(0, str(Path(__file__).parents[2]))
from forked_nodes import ForkedDaemon

pytestmark = pytest.mark.xdist_group("shared-federation")


def copy_node(federation: Any, name: str, tmp_path: Path) -> Path:
    """A node's folder under another path, so that a test may spoil it."""
    folder = tmp_path / name
    shutil.copytree(federation.root / name, folder)
    return folder


def run_refused(federation: Any, folder: Path, *, code: int = 6) -> str:
    """``node run`` in ``folder`` must end by itself with exit code ``code``; what it said on stderr and in its log."""
    log = folder / "run.log"
    log.write_text("")
    process = ForkedDaemon("node", folder, log)
    try:
        ended = process.wait(90)
    finally:
        process.kill()
    said = log.read_text()
    assert ended == code, f"{ended}: {said}"
    assert "Traceback" not in said
    return said


def reissue(federation: Any, folder: Path, *, role: str, name: str, now: datetime, days: int) -> None:
    """A certificate from the right CA, with other dates, put in place without ``node enroll``'s checks."""
    pem = authority.sign_request(
        federation.root / "ca",
        (folder / "tls.csr").read_bytes(),
        role=role,
        name=name,
        days=days,
        passphrase=None,
        now=now,
        renew=True,
    )
    (folder / "tls.crt").write_bytes(pem)


def test_an_expired_certificate(shared_federation: Any, tmp_path: Path) -> None:
    folder = copy_node(shared_federation, "node-0", tmp_path)
    reissue(shared_federation, folder, role="node", name="node-0", now=datetime.now(UTC) - timedelta(days=9), days=2)
    assert "expired" in run_refused(shared_federation, folder)


def test_a_certificate_from_the_future_is_a_matter_of_clocks(shared_federation: Any, tmp_path: Path) -> None:
    folder = copy_node(shared_federation, "node-0", tmp_path)
    reissue(shared_federation, folder, role="node", name="node-0", now=datetime.now(UTC) + timedelta(days=2), days=2)
    said = run_refused(shared_federation, folder)
    assert "not valid before" in said or "not yet valid" in said
    assert "clock" in said


def test_a_stranger_from_another_ca(shared_federation: Any, tmp_path: Path) -> None:
    f = shared_federation
    ca = f.ask("ca", "init", "--ca", tmp_path / "ca", "--federation", "test", "--no-passphrase")
    folder = tmp_path / "stranger"
    made = f.ask("node", "init", "node-0", "--dir", folder, "--federation", "test", "--coordinator", f.address)
    sign = ("ca", "sign", folder / "tls.csr", "--ca", tmp_path / "ca", "--out", tmp_path / "stranger.crt")
    f.ask(*sign, "--expect-fingerprint", made["csr_fingerprint"])
    f.ask(
        *("node", "enroll", "--dir", folder, "--cert", tmp_path / "stranger.crt"),
        *("--ca-cert", tmp_path / "ca" / "ca.crt", "--fingerprint", ca["fingerprint"]),
    )
    shutil.copy(f.root / "node-0" / "records.npz", folder)
    shutil.copy(f.root / "node-0" / "node.toml", folder)
    # First it does not know the coordinator's CA; with that CA taken from elsewhere, the coordinator does not know it.
    assert "unknown CA" in run_refused(f, folder)
    shutil.copy(f.root / "ca" / "ca.crt", folder / "ca.crt")
    assert "CA" in run_refused(f, folder)


def test_a_coordinators_certificate_does_not_serve_a_node(shared_federation: Any, tmp_path: Path) -> None:
    f = shared_federation
    folder = copy_node(f, "node-0", tmp_path)
    for name in ("tls.key", "tls.crt"):
        shutil.copy(f.root / "coordinator" / name, folder / name)
    said = run_refused(f, folder)
    assert "coordinator" in said
    assert "node" in said


def test_a_node_cannot_speak_as_another(shared_federation: Any, tmp_path: Path) -> None:
    f = shared_federation
    folder = copy_node(f, "node-0", tmp_path)
    for name in ("tls.key", "tls.crt"):
        shutil.copy(f.root / "node-1" / name, folder / name)
    said = run_refused(f, folder, code=3)  # the node itself sees it, before it dials
    assert "the certificate is that of node node-1" in said
    assert "node.toml says node node-0" in said
    settings = load_settings(folder)  # and so does the coordinator, of one that does not look
    now = datetime.now(UTC)
    channel, _ = dial(settings.coordinator, tls_files(settings), federation=settings.federation, now=now)
    client = CoordinatorClient(channel, "node-0", threading.Event())
    with pytest.raises(CertificateError, match="speaks as another: .* node node-1, .* node node-0"):
        client.list_plans()
    assert client.close()


def test_a_key_that_others_can_read(shared_federation: Any, tmp_path: Path) -> None:
    folder = copy_node(shared_federation, "node-0", tmp_path)
    for name in ("tls.key", "identity.key"):
        (folder / name).chmod(0o644)
        said = run_refused(shared_federation, folder)
        assert name in said
        assert "chmod 600" in said
        (folder / name).chmod(0o600)


def test_a_hostname_that_the_coordinator_does_not_have(shared_federation: Any, tmp_path: Path) -> None:
    f = shared_federation
    folder = copy_node(f, "node-0", tmp_path)
    text = (folder / "node.toml").read_text()
    (folder / "node.toml").write_text(text.replace(f.address, f"127.0.0.1:{f.port}"))
    said = run_refused(f, folder)
    assert "127.0.0.1" in said
    assert "localhost" in said


def test_a_plaintext_peer(shared_federation: Any, tmp_path: Path) -> None:
    f = shared_federation
    folder = copy_node(f, "node-0", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def answer() -> None:
            with contextlib.suppress(OSError):
                for _ in range(3):
                    peer, _ = plain.accept()
                    with peer:
                        peer.recv(64)
                        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        text = (folder / "node.toml").read_text()
        (folder / "node.toml").write_text(text.replace(f.address, f"localhost:{plain.getsockname()[1]}"))
        assert "TLS" in run_refused(f, folder)
    thread.join(timeout=60)


def test_a_node_that_serves_as_coordinator(shared_federation: Any, tmp_path: Path) -> None:
    f = shared_federation
    folder = copy_node(f, "node-0", tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f.root / "node-1" / "tls.crt", f.root / "node-1" / "tls.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(4):
                with contextlib.suppress(OSError):
                    peer, _ = listener.accept()
                    with peer, context.wrap_socket(peer, server_side=True) as tls:
                        tls.recv(1)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        text = (folder / "node.toml").read_text()
        (folder / "node.toml").write_text(text.replace(f.address, f"localhost:{listener.getsockname()[1]}"))
        said = run_refused(f, folder)
        assert "coordinator" in said
        assert "node" in said
    thread.join(timeout=60)


def test_no_certificate_gets_no_application_byte(shared_federation: Any) -> None:
    if shutil.which("openssl") is None:
        pytest.fail("openssl is not installed; on Debian: apt-get install openssl")
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{shared_federation.port}", "-alpn", "h2", "-quiet", "-ign_eof"],
        input=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == b""
    assert b"alert" in done.stderr or b"unexpected eof" in done.stderr


def test_plain_bytes_get_nothing_that_is_not_tls(shared_federation: Any) -> None:
    with socket.create_connection(("127.0.0.1", shared_federation.port), timeout=10) as peer:
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 32)
        got = b""
        with contextlib.suppress(OSError):
            while piece := peer.recv(4096):
                got += piece
    assert got == b"" or got[:1] == b"\x15"  # nothing, or one TLS alert record


def test_a_revoked_node(shared_federation: Any, tmp_path: Path) -> None:
    f = shared_federation
    f.add_node("node-9", _records(f))
    folder = copy_node(f, "node-9", tmp_path)
    f.ask("ca", "revoke", "node-9", "--ca", f.root / "ca")
    shutil.copy(f.root / "ca" / "crl.pem", f.root / "coordinator" / "crl.pem")
    f.wait(lambda: "revoked" in run_refused(f, folder))


def _records(federation: Any) -> Any:
    from fedsecure.data import load_dataset
    from fedsecure.data.settings import NpzSource

    plan = federation.plan("any", {"name": "fedavg", "local_epochs": 1})
    return load_dataset(NpzSource(kind="npz", path=federation.root / "node-0" / "records.npz"), plan.task)
