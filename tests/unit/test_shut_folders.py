"""Folders that may not be entered, and files that may not be read: one line that names them, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedsecure.cli import run

ROOT = Path(__file__).resolve().parents[2]
#: Has permission bits bind the superuser, too (capabilities(7)), from its next exec on, and then runs what it is given.
#: In a process of its own: what is done between fork and exec in this one finds gRPC without its threads.
BINDER = """
import ctypes, os, sys
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP; refused to, and not needed by, anybody else
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""
#: Runs one command line for each line of JSON on stdin; answers [exit code, stderr] as a line of JSON.
RUNNER = """
import contextlib, io, json, sys, traceback
from fedsecure.cli import run
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(json.loads(line))
        except BaseException:
            code = "crash"
            traceback.print_exc()
    print(json.dumps([code, err.getvalue()]), flush=True)
"""
PLAN = "fedsecure/plan/examples/digits-fedaf.toml"

Answers = list[tuple[int | str, str]]
Bound = Callable[[list[list[str]]], Answers]


@pytest.fixture(scope="module")
def bound() -> Iterator[Bound]:
    """Runs command lines in one process of their own, which permission bits bind."""
    runner = subprocess.Popen(
        [sys.executable, "-c", BINDER, RUNNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert runner.stdin is not None
    assert runner.stdout is not None
    requests, replies = runner.stdin, runner.stdout

    def ask(commands: list[list[str]]) -> Answers:
        answers: Answers = []
        for arguments in commands:
            requests.write(json.dumps(arguments) + "\n")
            requests.flush()
            code, err = json.loads(replies.readline())
            answers.append((code, err))
        return answers

    yield ask
    requests.close()
    assert runner.wait(60) == 0
    replies.close()


@pytest.fixture
def shut(tmp_path: Path) -> Iterator[Path]:
    """A folder that may not be entered, with a file in it."""
    folder = tmp_path / "shut"
    folder.mkdir()
    (folder / "file").write_text("x")
    folder.chmod(0)
    if os.geteuid() == 0 and not sys.platform.startswith("linux"):
        pytest.skip("permissions do not bind this user")
    yield folder
    folder.chmod(0o700)


def clear(commands: list[list[str]], answers: Answers, name: Path | str) -> None:
    for arguments, (code, err) in zip(commands, answers, strict=True):
        words = " ".join(arguments)
        assert code not in (0, 1, "crash"), f"{words}: {code}\n{err}"
        lines = err.splitlines()
        assert "Traceback" not in err, f"{words}\n{err}"
        if code == 2:  # said by the parser of the command line, under its usage
            assert "is not readable" in lines[-1], f"{words}\n{err}"
            assert str(name) in lines[-1], f"{words}\n{err}"
            continue
        assert lines[0].startswith("error: "), f"{words}\n{err}"
        assert str(name) in lines[0], f"{words}\n{err}"
        assert len(lines) <= 2, f"{words}\n{err}"


def test_every_verb_names_a_folder_that_may_not_be_entered(bound: Bound, shut: Path, tmp_path: Path) -> None:
    d, digest = str(shut), "0123456789abcdef"
    enrol = ["--cert", f"{d}/c", "--ca-cert", f"{d}/ca", "--fingerprint", "AA"]
    commands = [
        ["node", "init", "a", "--federation", "f", "--coordinator", "h:1", "--dir", d],
        ["node", "init", "a", "--federation", "f", "--coordinator", "h:1", "--dir", f"{d}/x"],
        ["node", "enroll", *enrol, "--dir", d],
        ["node", "run", "--dir", d],
        ["node", "check", "--dir", d],
        ["node", "plans", "--dir", d],
        ["node", "approve", digest, "--dir", d],
        ["node", "refuse-plan", digest, "--reason", "r", "--dir", d],
        ["node", "releases", "--dir", d],
        ["node", "release", "1", "--dir", d],
        ["node", "refuse", "1", "--reason", "r", "--dir", d],
        ["node", "preview", "1", "--out", str(tmp_path / "p"), "--dir", d],
        ["node", "verify-log", "--dir", d],
        ["coordinator", "init", "--federation", "f", "--dns", "h", "--dir", d],
        ["coordinator", "init", "--federation", "f", "--dns", "h", "--dir", f"{d}/x"],
        ["coordinator", "enroll", *enrol, "--dir", d],
        ["coordinator", "submit", PLAN, "--dir", d],
        ["coordinator", "run", "--dir", d],
        ["coordinator", "status", "--dir", d],
        ["coordinator", "runs", "--dir", d],
        ["coordinator", "abort", digest, "--dir", d],
        ["coordinator", "export", digest, "--out", str(tmp_path / "o"), "--dir", d],
        ["ca", "init", "--federation", "f", "--no-passphrase", "--ca", d],
        ["ca", "list", "--ca", d],
        ["ca", "revoke", "a", "--ca", d],
        ["ca", "sign", f"{d}/tls.csr", "--out", str(tmp_path / "x.crt"), "--ca", str(tmp_path)],
        ["plan", "show", f"{d}/plan.toml"],
        ["plan", "check", PLAN, "--policy", f"{d}/policy.toml"],
        ["simulate", f"{d}/plan.toml", "--out", str(tmp_path / "s")],
        ["demo", "--out", f"{d}/demo"],
        ["demo", "--out", d],
    ]
    clear(commands, bound(commands), shut)


def test_what_a_configuration_names_and_may_not_be_reached_is_named(bound: Bound, shut: Path, tmp_path: Path) -> None:
    node, coordinator = tmp_path / "node", tmp_path / "coordinator"
    assert run(["node", "init", "a", "--federation", "f", "--coordinator", "h:1", "--dir", str(node)]) == 0
    assert run(["coordinator", "init", "--federation", "f", "--dns", "h", "--dir", str(coordinator)]) == 0
    shipped = {path: (path / f"{path.name}.toml").read_text() for path in (node, coordinator)}

    def with_(folder: Path, old: str, new: str, name: str) -> str:
        copy = tmp_path / name
        copy.mkdir()
        for file in folder.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
            (copy / file.name).chmod(file.stat().st_mode & 0o777)
        assert old in shipped[folder]
        (copy / f"{folder.name}.toml").write_text(shipped[folder].replace(old, new, 1))
        return str(copy)

    s = with_(node, 'store = "store"', f'store = "{shut}/store"', "a")
    i = with_(node, 'identity = "identity.key"', f'identity = "{shut}/identity.key"', "b")
    r = with_(node, '# crl = "crl.pem"', f'crl = "{shut}/crl.pem"', "c")
    k = with_(node, 'cert = "tls.crt"', f'cert = "{shut}/tls.crt"', "d")
    cs = with_(coordinator, 'store = "store"', f'store = "{shut}/store"', "e")
    cr = with_(coordinator, '# crl = "crl.pem"', f'crl = "{shut}/crl.pem"', "f")
    ck = with_(coordinator, 'key = "tls.key"', f'key = "{shut}/tls.key"', "g")
    commands = [
        ["node", "run", "--dir", s],
        ["node", "plans", "--dir", s],
        ["node", "releases", "--dir", s],
        ["node", "verify-log", "--dir", s],
        ["node", "run", "--dir", i],
        ["node", "check", "--dir", i],
        ["node", "run", "--dir", r],
        ["node", "run", "--dir", k],
        ["coordinator", "run", "--dir", cs],
        ["coordinator", "submit", PLAN, "--dir", cs],
        ["coordinator", "status", "--dir", cs],
        ["coordinator", "run", "--dir", cr],
        ["coordinator", "run", "--dir", ck],
    ]
    clear(commands, bound(commands), shut)


def test_records_and_policies_that_may_not_be_reached_are_named(bound: Bound, shut: Path, tmp_path: Path) -> None:
    node = tmp_path / "node"
    assert run(["node", "init", "a", "--federation", "f", "--coordinator", "h:1", "--dir", str(node)]) == 0
    text = (node / "node.toml").read_text()
    (node / "node.toml").write_text(
        text.replace('policy = "policy.toml"', f'policy = "{shut}/policy.toml"').replace(
            'path = "data"', f'path = "{shut}/data"'
        )
    )
    plan = tmp_path / "plan.toml"
    plan.write_text((ROOT / PLAN).read_text().replace('kind = "digits"', f'kind = "npz"\npath = "{shut}/d"'))
    answers = bound(
        [
            ["node", "check", "--plan", PLAN, "--dir", str(node), "--json"],
            ["simulate", str(plan), "--out", str(tmp_path / "s")],
        ]
    )
    assert [code for code, _ in answers] == [6, 15]  # the first fault is the certificate, which was never issued
    assert str(shut) in answers[1][1]


def test_a_store_that_is_there_and_may_not_be_used_is_named(bound: Bound, tmp_path: Path) -> None:
    coordinator = tmp_path / "coordinator"
    assert run(["coordinator", "init", "--federation", "f", "--dns", "h", "--dir", str(coordinator)]) == 0
    assert run(["coordinator", "submit", PLAN, "--dir", str(coordinator)]) == 0
    store = coordinator / "store"
    commands = [["coordinator", verb, "--dir", str(coordinator)] for verb in ("status", "runs", "run")]
    for path, mode in ((store, 0o000), (store / "journal.sqlite", 0o000), (store, 0o500)):
        before = path.stat().st_mode & 0o777
        path.chmod(mode)
        answers = bound(commands[:2] if mode == 0o500 else commands)
        path.chmod(before)
        if mode == 0o500:  # it can be read as it is; what is to be written is not
            answers = [(code, err) for code, err in answers if code != 0]
        clear(commands[: len(answers)], answers, store)
    assert run(["coordinator", "runs", "--dir", str(coordinator)]) == 0
