"""Whoever reads the output may stop reading: a command then ends at once, without a word, as by SIGPIPE."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedsecure.plan.examples import read_example

COMMANDS = (
    ["plan", "show", "PLAN"],
    ["plan", "show", "PLAN", "--json"],
    ["plan", "check", "PLAN"],
    ["plan", "example"],
    ["plan", "example", "digits-fedaf"],
    ["--help"],
    ["plan", "--help"],
    ["--version"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_whose_reader_is_gone_ends_quietly(command: list[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(read_example("digits-fedaf"))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fedsecure", *(str(plan) if a == "PLAN" else a for a in command)],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=240,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_fault_is_told_by_its_own_code_whoever_reads(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fedsecure", "plan", "check", str(tmp_path / "absent.toml")],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=240,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.returncode == 3
    assert b"no such file" in done.stderr
