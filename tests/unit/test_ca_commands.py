"""``fedsecure ca``: what a person and a machine see, and how every fault ends."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedsecure.commands import ca as commands
from fedsecure.commands.output import fail
from fedsecure.crypto import authority, enrolment, passphrase
from fedsecure.errors import FedSecureError


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs one command in ``tmp_path`` without a terminal; returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(passphrase, "COST", 1 << 10)
    monkeypatch.setattr(sys, "stdin", Path("/dev/null").open(encoding="utf-8"))  # noqa: SIM115

    def go(*arguments: str) -> tuple[int, str, str]:
        try:
            commands.app(args=list(arguments), prog_name="fedsecure ca")
            code = 0
        except SystemExit as stop:
            code = stop.code
        except FedSecureError as error:
            code = fail(error)
        out = capsys.readouterr()
        return code, out.out, out.err

    yield go
    sys.stdin.close()


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "passphrase"
    path.write_text("correct horse\n")
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def made(run, secret):
    code, _, _ = run("init", "--federation", "heart", "--passphrase-file", secret)
    assert code == 0
    return enrolment.create_identity(Path("n"), federation="heart", role="node", name="charite")


def test_from_init_to_list(run, secret, made):
    code, out, _ = run(
        "sign", "n/tls.csr", "--out", "n.crt", "--expect-fingerprint", made.csr_fingerprint, "--passphrase-file", secret
    )
    assert code == 0
    for line in (f"fingerprint  {made.csr_fingerprint}", "role         node", "name         charite"):
        assert line in out
    ca = authority.read_authority(Path("ca"))
    assert ca.key_encrypted
    assert ca.fingerprint in out
    code, out, _ = run("list")
    assert code == 0
    assert out.splitlines()[0].endswith("key encrypted")
    assert [line.split()[:3] for line in out.splitlines()[3:]] == [["live", "node", "charite"]]
    code, out, _ = run("revoke", "charite", "--reason", "key-compromise", "--passphrase-file", secret)
    assert "to the coordinator, to every node and to every analyst now" in out
    assert code == 0
    assert "ca/crl.pem" in out
    code, out, _ = run("list", "--json")
    listed = json.loads(out)
    assert listed["fingerprint"] == ca.fingerprint
    assert [(c["state"], c["reason"]) for c in listed["certificates"]] == [("revoked", "key-compromise")]


def test_json_is_one_object_on_stdout_and_a_person_still_sees_who_asks(run):
    code, out, err = run("init", "--federation", "heart", "--ca", "x", "--no-passphrase", "--json")
    assert code == 0
    assert json.loads(out)["key_encrypted"] is False
    assert "warning: the CA's key is stored unencrypted" in err
    request = enrolment.create_identity(
        Path("c"), federation="heart", role="coordinator", name="coordinator", dns=("c.example.org", "10.0.0.1")
    )
    arguments = ("--ca", "x", "--out", "c.crt", "--expect-fingerprint", request.csr_fingerprint, "--json")
    code, out, err = run("sign", "c/tls.csr", *arguments)
    assert code == 0
    signed = json.loads(out)
    assert (signed["role"], signed["hosts"]) == ("coordinator", ["c.example.org", "10.0.0.1"])
    assert "hosts        c.example.org, 10.0.0.1" in err
    code, out, _ = run("revoke", "coordinator", "--ca", "x", "--json")
    assert [c["state"] for c in json.loads(out)["revoked"]] == ["revoked"]


def test_without_a_terminal_nothing_hangs(run, secret, made):
    code, _, err = run("init", "--federation", "lung", "--ca", "lung")
    assert code == 3
    assert "error: a passphrase is needed, and there is no terminal" in err
    assert "--passphrase-file" in err
    assert not Path("lung").exists()
    code, _, err = run("sign", "n/tls.csr", "--out", "n.crt", "--passphrase-file", secret)
    assert code == 3
    assert "needs a confirmation" in err
    code, _, err = run("sign", "n/tls.csr", "--out", "n.crt", "--expect-fingerprint", made.csr_fingerprint)
    assert code == 3
    assert "a passphrase is needed" in err
    assert not Path("n.crt").exists()
    assert authority.list_certificates(Path("ca")) == ()


def test_a_wrong_fingerprint_signs_nothing(run, secret, made):
    wrong = "SHA256:" + ":".join(["00"] * 32)
    code, _, err = run(
        "sign", "n/tls.csr", "--out", "n.crt", "--expect-fingerprint", wrong, "--passphrase-file", secret
    )
    assert code == 6
    assert f"n/tls.csr: has the fingerprint {made.csr_fingerprint}, not {wrong}" in err
    assert authority.list_certificates(Path("ca")) == ()


def test_renewal_must_be_asked_for(run, secret, made):
    arguments = ("--expect-fingerprint", made.csr_fingerprint, "--passphrase-file", secret)
    assert run("sign", "n/tls.csr", "--out", "1.crt", *arguments)[0] == 0
    code, _, err = run("sign", "n/tls.csr", "--out", "2.crt", *arguments)
    assert code == 6
    assert "has a live certificate already" in err
    assert run("sign", "n/tls.csr", "--out", "2.crt", "--renew", *arguments)[0] == 0
    code, _, err = run("sign", "n/tls.csr", "--out", "2.crt", "--renew", *arguments)
    assert (code, "2.crt: exists already" in err) == (6, True)
    code, _, err = run("sign", "n/tls.csr", "--out", "no/2.crt", "--renew", *arguments)
    assert (code, "no: no such folder" in err) == (3, True)
    assert len(authority.list_certificates(Path("ca"))) == 2


@pytest.mark.parametrize(
    ("content", "mode", "code", "fault"),
    [
        ("correct horse", 0o644, 6, "mode 0644"),
        ("\n", 0o600, 3, "is empty"),
        ("wrong horse", 0o600, 6, "wrong passphrase"),
        ("correct horse\r\n", 0o600, 0, ""),
    ],
)
def test_passphrase_files(run, made, content, mode, code, fault):
    path = Path("other")
    path.write_bytes(content.encode())
    path.chmod(mode)
    arguments = ("--expect-fingerprint", made.csr_fingerprint, "--passphrase-file", "other")
    got, out, err = run("sign", "n/tls.csr", "--out", "n.crt", *arguments)
    assert got == code
    assert fault in err
    assert "horse" not in out + err


def test_contradictions_and_missing_files(run, secret):
    assert run("init", "--federation", "heart", "--no-passphrase", "--passphrase-file", secret)[0] == 3
    assert run("init", "--federation", "Heart Study", "--no-passphrase")[0] == 3
    code, _, err = run("list")
    assert (code, "ca: no CA here" in err) == (6, True)
    code, _, err = run("sign", "nothing.csr", "--out", "x.crt")
    assert (code, "nothing.csr: no such file" in err) == (6, True)
    assert run("init")[0] == 2


def test_the_passphrase_is_asked_for_twice_on_a_terminal(tmp_path):
    """On a real pseudo-terminal: the two answers differ first, then agree; neither is echoed."""
    script = "from fedsecure.commands.ca import app; app(args=['init', '--federation', 'heart'], prog_name='ca')"
    ours, theirs = pty.openpty()
    answers = iter([b"first try\n", b"another try\n", b"correct horse\n", b"correct horse\n"])
    screen = b""
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    stop = threading.Timer(240, process.kill)
    stop.start()
    try:
        while True:
            try:
                screen += (part := os.read(ours, 1024))
            except OSError:
                break
            if not part:
                break
            if screen.endswith(b": "):  # the space comes once echoing is off and old input is thrown away
                os.write(ours, next(answers))
        assert process.wait(30) == 0
    finally:
        stop.cancel()
        process.kill()
        process.wait(30)
        os.close(ours)
    assert b"horse" not in screen
    assert b"do not match" in screen
    assert authority.read_authority(tmp_path / "ca").key_encrypted
