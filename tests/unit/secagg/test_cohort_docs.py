"""docs/secagg-cohort.md: its commands exist with the options shown, and its numbers are the code's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from fedsecure.cli import app
from fedsecure.secagg.cohort.threshold import FEW_NODES, MAX_NODES, MIN_NODES, Threshold

PAGE = (Path(__file__).parents[3] / "docs" / "secagg-cohort.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^(?:node|coordinator)\$ fedsecure (.*)$", PAGE, re.MULTILINE)
ROWS = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_and_their_options_exist(line):
    words = shlex.split(line)
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


def test_every_verb_is_on_the_page():
    group = typer.main.get_command(app).commands
    for role in ("node", "coordinator"):
        for verb in group[role].commands["cohort"].commands:
            if (role, verb) != ("coordinator", "show"):
                assert f"{role} cohort {verb}" in PAGE


def test_numbers_are_those_of_the_code():
    assert len(ROWS) == 7
    for row in ROWS:
        nodes, required, dropouts, colluders = map(int, row)
        threshold = Threshold(nodes)
        assert (threshold.required, threshold.dropouts, threshold.colluders) == (required, dropouts, colluders)
    assert f"Fewer than {MIN_NODES} are refused" in PAGE
    assert f"Below {FEW_NODES} there is a warning" in PAGE
    assert f"More than {MAX_NODES} are refused" in PAGE
