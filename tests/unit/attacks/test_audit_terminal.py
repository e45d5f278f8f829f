"""What audits tell at a terminal: steps with the time that is left, allowed ranges, exit codes as README has them."""

from __future__ import annotations

import os

import pytest

from fedsecure.cli import run
from fedsecure.errors import EXIT_CODES
from fedsecure_attacks.canaries import directions
from fedsecure_attacks.cli import canaries as cli_canaries
from fedsecure_attacks.cli import files as cli_files
from fedsecure_attacks.cli.progress import Parts, Steps
from fedsecure_attacks.mechanism.cells import CellStore
from fedsecure_attacks.selftest import run as selftest
from fedsecure_attacks.verdict import Word


def clock():
    ticks = iter(range(0, 1000, 10))
    return lambda: next(ticks)


def test_steps_tell_what_is_left(capsys):
    steps = Steps(3, quiet=False, clock=clock())
    for what in ("one", "two", "three", "more than there were to be"):
        steps(what)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "step 1 of 3: one …", "step 2 of 3: two …; about 40 s left", "step 3 of 3: three …; about 15 s left",
        "step 4 of 4: more than there were to be …; about 13 s left",
    ]  # fmt: skip
    Steps(3, quiet=True)("one")
    assert not capsys.readouterr().err


def test_parts_tell_what_is_left_of_each(capsys):
    parts = Parts(quiet=False, clock=clock())
    for what, done in (("training", 1), ("training", 2), ("attacking", 1), ("attacking", 2)):
        parts(what, done, 2)
    assert capsys.readouterr().err.splitlines() == [
        "training 1 of 2; about 10 s left", "training 2 of 2", "attacking 1 of 2; about 10 s left", "attacking 2 of 2",
    ]  # fmt: skip


def test_as_many_steps_as_are_told_of():
    assert len(selftest._parts()) == selftest.PARTS
    assert cli_files.STEPS >= 11


def test_the_least_number_of_canaries_is_named(capsys):
    assert cli_canaries.LEAST == directions.LEAST
    assert run(["audit", "canaries", "plan.toml", "--canaries", "1"]) == 2
    assert "greater than or equal to 40" in capsys.readouterr().err


def test_exit_codes_of_verdicts_are_in_the_table():
    for word in Word:
        if word.exit_code:
            assert EXIT_CODES[word.exit_code] == ("", f"`audit`: the verdict is {word.value}")


DAMAGED = ["[" * 100_000, '{"result": ' + "[" * 100_000, "", "[]", '{"sha256": 1, "result": 1e999}']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_cell_is_measured_anew(tmp_path, text):
    (tmp_path / "key.json").write_text(text)
    assert CellStore(tmp_path).read("key", None) is None


def test_a_cell_that_is_no_file_is_measured_anew(tmp_path):
    os.mkfifo(tmp_path / "key.json")
    assert CellStore(tmp_path).read("key", None) is None
