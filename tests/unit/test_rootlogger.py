"""Libraries that we import leave the process's root logger alone, and daemons do not depend on it."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys

from fedsecure.rootlogger import root_logger_kept
from fedsecure_coordinator.views.progress import Progress

IMPORTS = """
import logging
import fedsecure.privacy.dpsgd
from fedsecure.privacy.prv import prv_epsilon
from fedsecure.privacy.spend import Spend
assert prv_epsilon([Spend(1.0, 0.1, 10)], 1e-5, 5.0) is not None
assert "opacus" in __import__("sys").modules
print(logging.getLogger().handlers, logging.getLogger().level)
"""


def test_opacus_gives_the_root_logger_no_handler() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout) == (0, f"[] {logging.WARNING}\n"), done.stderr


def test_what_a_block_adds_to_the_root_logger_is_taken_off() -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    with root_logger_kept():
        root.addHandler(logging.StreamHandler(io.StringIO()))
        root.setLevel(logging.DEBUG)
    assert (root.handlers, root.level) == (before, level)


def test_a_handler_of_the_root_logger_says_nothing_while_a_coordinator_writes_its_log() -> None:
    own, other = io.StringIO(), io.StringIO()
    root, handler = logging.getLogger(), logging.StreamHandler(other)
    root.addHandler(handler)
    try:
        with Progress(own, "json", list).showing():
            logging.getLogger("fedsecure.stderr").warning("once")
        logging.getLogger("fedsecure").warning("afterwards")
    finally:
        root.removeHandler(handler)
    (line,) = own.getvalue().splitlines()
    assert json.loads(line)["message"] == "once"
    assert other.getvalue() == "afterwards\n"
