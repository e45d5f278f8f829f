"""Joining: keys made here, a certificate taken in, and nothing changed when anything is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from fedsecure.crypto import enrolment
from fedsecure.crypto.certificates import fingerprint
from fedsecure.crypto.signatures import load_identity, load_public_identity
from fedsecure.errors import CertificateError, ConfigError


def content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def accept(consortium, folder: Path, pem: bytes, *, ca=None, expected=None, now=None):
    (consortium.root / "incoming.crt").write_bytes(pem)
    (consortium.root / "incoming-ca.crt").write_bytes(ca or consortium.ca_pem)
    return enrolment.accept_certificate(
        folder,
        cert=consortium.root / "incoming.crt",
        ca_cert=consortium.root / "incoming-ca.crt",
        fingerprint=expected or consortium.authority.fingerprint,
        now=now or consortium.now,
    )


def refused(consortium, folder: Path, pem: bytes, fault: str, **how) -> CertificateError:
    before = content(folder)
    with pytest.raises(CertificateError, match=fault) as caught:
        accept(consortium, folder, pem, **how)
    assert content(folder) == before
    return caught.value


def test_what_a_new_identity_holds(tmp_path):
    made = enrolment.create_identity(tmp_path / "n", federation="heart", role="node", name="charite")
    modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "n").iterdir()}
    assert modes == {"tls.key": 0o600, "tls.csr": 0o644, "identity.key": 0o600, "identity.pub": 0o644}
    assert (tmp_path / "n").stat().st_mode & 0o777 == 0o700
    assert made.csr == tmp_path / "n" / "tls.csr"
    assert made.csr_fingerprint == fingerprint(made.csr.read_bytes())
    signer = load_identity(tmp_path / "n" / "identity.key")
    assert made.identity_fingerprint == signer.fingerprint
    assert load_public_identity(tmp_path / "n" / "identity.pub") == signer.public_bytes
    who = enrolment.read_enrolment(tmp_path / "n")
    assert (who.federation, who.role, who.name) == ("heart", "node", "charite")


@pytest.mark.parametrize("there", ["tls.key", "tls.csr", "identity.key", "identity.pub", "tls.crt", "ca.crt"])
def test_an_identity_is_never_overwritten(tmp_path, there):
    (tmp_path / there).write_bytes(b"precious")
    with pytest.raises(CertificateError, match=f"{there}: exists already"):
        enrolment.create_identity(tmp_path, federation="heart", role="node", name="charite")
    assert content(tmp_path) == {there: b"precious"}


def test_a_dangling_link_is_not_written_through(tmp_path):
    (tmp_path / "identity.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CertificateError, match="exists already"):
        enrolment.create_identity(tmp_path, federation="heart", role="node", name="charite")
    assert not (tmp_path / "elsewhere").exists()


def test_a_failed_attempt_leaves_nothing(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise CertificateError("identity.pub: cannot be written: No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(enrolment, "write_public", full)
        with pytest.raises(CertificateError, match="No space left"):
            enrolment.create_identity(tmp_path, federation="heart", role="node", name="charite")
    assert content(tmp_path) == {}


def test_two_that_begin_at_once_leave_the_first_ones_keys(tmp_path, monkeypatch):
    (tmp_path / "tls.key").write_bytes(b"precious")
    monkeypatch.setattr(enrolment, "present", lambda _: False)  # as if it came between the look and the write
    with pytest.raises(CertificateError, match="exists already"):
        enrolment.create_identity(tmp_path, federation="heart", role="node", name="charite")
    assert content(tmp_path) == {"tls.key": b"precious"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_folders_of_another_user_are_one_clear_line(tmp_path, consortium):
    """Run as nobody: every act on a folder that may not be entered names it."""
    script = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from fedsecure.crypto import authority, enrolment
from fedsecure.errors import CertificateError
from fedsecure.wire.credentials import TlsFiles
shut, now = Path(sys.argv[1]), datetime.now(UTC)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for act in (
    lambda: authority.read_authority(shut),
    lambda: authority.list_certificates(shut),
    lambda: authority.init_ca(shut, "heart", None, 1, now),
    lambda: authority.init_ca(shut / "x", "heart", None, 1, now),
    lambda: authority.revoke(shut, "x", passphrase=None, now=now),
    lambda: enrolment.create_identity(shut, federation="heart", role="node", name="a"),
    lambda: enrolment.create_identity(shut / "x", federation="heart", role="node", name="a"),
    lambda: enrolment.read_enrolment(shut),
    lambda: TlsFiles.in_folder(shut).ca_pem(),
):
    try:
        act()
    except CertificateError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(consortium.ca)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 9
    assert all("Permission denied" in line and str(consortium.ca) in line for line in lines), lines


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"federation": "Heart"}, "federation name"),
        ({"role": "server"}, "role 'server'"),
        ({"name": "Charité"}, "node name"),
        ({"dns": ("a",)}, "names no host"),
        ({"role": "coordinator", "name": "coordinator"}, "must name the hosts"),
        ({"role": "coordinator", "name": "main", "dns": ("a",)}, "is named 'coordinator'"),
        ({"role": "coordinator", "name": "coordinator", "dns": ("https://a",)}, "host name"),
    ],
)
def test_malformed_wishes_make_no_folder(tmp_path, settings, fault):
    with pytest.raises(ConfigError, match=fault):
        enrolment.create_identity(tmp_path / "n", **{"federation": "heart", "role": "node", "name": "a", **settings})
    assert not (tmp_path / "n").exists()


def test_enrolling(consortium):
    folder = consortium.request()
    peer = accept(consortium, folder, consortium.sign(folder))
    assert (peer.role, peer.name) == ("node", "charite")
    assert (folder / "tls.crt").read_bytes() == (consortium.root / "incoming.crt").read_bytes()
    assert (folder / "ca.crt").read_bytes() == consortium.ca_pem


def test_fingerprints_however_they_are_typed(consortium):
    folder = consortium.request()
    pem = consortium.sign(folder)
    exact = consortium.authority.fingerprint
    for typed in (exact, exact.lower(), exact.removeprefix("SHA256:"), exact.replace(":", " ")[7:], f" {exact}\n"):
        accept(consortium, folder, pem, expected=typed)
    refused(
        consortium, folder, pem, "has the fingerprint SHA256:.*, not SHA256:", expected="SHA256:" + "ab:" * 31 + "ab"
    )
    for typed in ("SHA256:", exact[:-1], exact + "0", exact[:-1] + "g", "yes"):
        refused(consortium, folder, pem, "fingerprint .* is malformed", expected=typed)


def test_another_ca_under_our_fingerprint(consortium, another_consortium):
    folder = consortium.request()
    pem = another_consortium.sign(folder)
    refused(consortium, folder, pem, "unknown CA")
    refused(consortium, folder, pem, "has the fingerprint", ca=another_consortium.ca_pem)


def test_certificates_that_are_not_for_this_folder(consortium):
    folder = consortium.request()
    consortium.sign(folder)
    elsewhere = consortium.request(folder="same-name-other-key")
    refused(consortium, folder, consortium.sign(elsewhere, renew=True), "is for another key than")
    refused(consortium, folder, consortium.issue("node", "mayo"), "another's name")
    refused(consortium, folder, consortium.issue("analyst", "charite"), "wrong role")
    refused(consortium, folder, b"garbage", "incoming.crt: malformed")
    error = refused(consortium, folder, consortium.ca_pem, "incoming.crt: is the certificate of a CA, not the one")
    assert "--ca-cert" in error.hint


def test_dates_and_the_wrong_file_as_ca(consortium):
    folder = consortium.request()
    pem = consortium.sign(folder, days=5)
    refused(consortium, folder, pem, "expired on", now=consortium.now + timedelta(days=6))
    refused(consortium, folder, pem, "not yet valid", now=consortium.now - timedelta(days=1))
    refused(consortium, folder, pem, "is the certificate of a participant", ca=pem, expected=fingerprint(pem))


def test_nothing_to_enrol(consortium, tmp_path):
    pem = consortium.issue()
    with pytest.raises(CertificateError, match=r"tls.csr: no such file \(certificate request\)"):
        accept(consortium, tmp_path / "nothing", pem)
    folder = consortium.request("node", "mayo")
    (folder / "tls.key").chmod(0o644)
    refused(consortium, folder, consortium.sign(folder), "mode 0644")


def test_renewal_replaces_the_certificate(consortium):
    folder = consortium.request()
    accept(consortium, folder, consortium.sign(folder, days=10))
    later = consortium.now + timedelta(days=9)
    renewed = consortium.sign(folder, at=later, renew=True)
    peer = accept(consortium, folder, renewed, now=later)
    assert peer.not_after == later + timedelta(days=90)
    assert (folder / "tls.crt").read_bytes() == renewed


def test_a_disk_that_fills_up_between_the_two_files(consortium, monkeypatch):
    folder = consortium.request()
    pem = consortium.sign(folder)
    real = enrolment.write_public

    def broken(path: Path, data: bytes) -> None:
        if path.name == "tls.crt":
            raise CertificateError("tls.crt: cannot be written: No space left on device")
        real(path, data)

    with monkeypatch.context() as full:
        full.setattr(enrolment, "write_public", broken)
        refused(consortium, folder, pem, "No space left")
    accept(consortium, folder, pem)
    with monkeypatch.context() as full:
        full.setattr(enrolment, "write_public", broken)
        refused(consortium, folder, pem, "No space left")
