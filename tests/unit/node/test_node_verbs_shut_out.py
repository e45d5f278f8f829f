"""Every verb on a folder, or beside a file, that this user may not enter or read: one clear line, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path

import pytest

from fedsecure_node.cli.first_steps import init_node
from fedsecure_node.store.store import Store

#: What may not be entered or read, each in a folder of its own.
SHUT = (".", "store", "node.toml", "identity.key")
#: Runs each command line as a user whom permissions bind; prints [exit code or "crash", stderr] of each.
AS_NOBODY = """
import contextlib, encodings.utf_8_sig, io, json, os, sys, traceback
import fedsecure_node.assemble, fedsecure_node.cli.first_steps, fedsecure_node.cli.verification
import fedsecure_node.cli.forgetting
import fedsecure_node.cli.plans, fedsecure_node.cli.previews, fedsecure.crypto.enrolment, fedsecure.methods
from fedsecure.cli import run
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
answers = []
for arguments in json.load(sys.stdin):
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            code = run(["node", *arguments])
        except BaseException:
            code = "crash"
            traceback.print_exc()
    answers.append([code, err.getvalue()])
json.dump(answers, sys.stdout)
"""


#: What is shut -> the node's folder, and (command line, exit code or "crash", stderr) of each verb.
Answers = dict[str, tuple[Path, list[tuple[list[str], int | str, str]]]]


def verbs(folder: Path) -> list[list[str]]:
    at = ["--dir", str(folder)]
    return [
        ["plans", *at], ["releases", *at], ["queries", *at], ["check", *at], ["run", *at], ["verify-log", *at],
        ["approve", "0" * 64, *at], ["refuse-plan", "0" * 64, "--reason", "x", *at],
        ["release", "1", *at], ["refuse", "1", "--reason", "x", *at],
        ["preview", "1", "--out", str(folder / "out"), *at], ["forget-log", "--reason", "x", *at],
        ["init", "a", "--federation", "f", "--coordinator", "h:1", *at],
        ["enroll", "--cert", str(folder / "a.crt"), "--ca-cert", str(folder / "ca.crt"), "--fingerprint", "x", *at],
    ]  # fmt: skip


@pytest.fixture(scope="module")
def answers() -> Answers:
    """For each of ``SHUT`` every command line with its exit code and what it said: all in one process."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folders = [Path(place) / f"node-{number}" for number in range(len(SHUT))]
        for folder, shut in zip(folders, SHUT, strict=True):
            init_node(folder, node="a", federation="f", coordinator="localhost:9")
            with Store(folder / "store"):
                pass
            for path in (folder, *folder.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            (folder / shut).chmod(0o000)
        commands = [verbs(folder) for folder in folders]
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY], input=json.dumps([*chain(*commands)]), capture_output=True, text=True,
            timeout=240, check=False,
        )  # fmt: skip
        for folder, shut in zip(folders, SHUT, strict=True):
            (folder / shut).chmod(0o755)
    assert done.returncode == 0, done.stderr
    said = iter(json.loads(done.stdout))
    return {
        shut: (folder, [(arguments, *next(said)) for arguments in of])
        for shut, folder, of in zip(SHUT, folders, commands, strict=True)
    }


@pytest.mark.parametrize("shut", SHUT)
def test_no_verb_ends_in_a_traceback(shut: str, answers: Answers) -> None:
    folder, said = answers[shut]
    for arguments, code, err in said:
        lines = err.splitlines()
        if (shut, arguments[0]) == ("identity.key", "verify-log"):
            assert code == 0, err  # the public key is enough
            continue
        assert code not in (0, 1, "crash"), f"{arguments[0]}: {code}: {err}"
        assert lines[0].startswith("error: ") or arguments[0] == "run", err
        assert "Traceback" not in err
        assert str(folder) in err or os.geteuid() != 0, f"{arguments[0]}: {err}"
