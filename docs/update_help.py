"""Refresh the ``--help`` blocks and the exit codes of README.md; with ``--check``, fail when they are out of date.

A block is fenced, and stands after a line ``<!-- help: ARGUMENTS -->``; the codes stand after ``<!-- exit codes -->``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
from pathlib import Path

os.environ |= {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}

from fedsecure.cli import run
from fedsecure.errors import EXIT_CODES

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(r"(<!-- help:(?P<arguments>[a-z -]*)-->\n```text\n)(?P<text>.*?)(```\n)", re.DOTALL)


CODES = re.compile(r"(<!-- exit codes -->\n).*?(\n\n)", re.DOTALL)


#: What a shell reports of a program that SIGPIPE ended.
GONE = "| 141 | | nobody reads the output any more (`fedsecure … \\| head`) |"


def exit_codes() -> str:
    """The table of exit codes."""
    rows = [f"| {c} | {f'`{n}`' if n else ''} | {meaning} |" for c, (n, meaning) in sorted(EXIT_CODES.items())]
    return "\n".join(["| code | name | meaning |", "|---|---|---|", *rows, "| 130 | | interrupted |", GONE])


def printed(arguments: str) -> str:
    """What ``fedsecure ARGUMENTS --help`` prints, 80 columns wide."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run([*arguments.split(), "--help"])
    if code:
        raise SystemExit(f"fedsecure {arguments} --help: exit code {code}")
    return f"$ fedsecure {' '.join([*arguments.split(), '--help'])}\n" + out.getvalue().strip() + "\n"


def refreshed(text: str) -> str:
    """README's text with every block as it is now."""
    text = CODES.sub(lambda found: found[1] + exit_codes() + found[2], text)
    return BLOCK.sub(lambda found: found[1] + printed(found["arguments"]) + found[4], text)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    old = README.read_text(encoding="utf-8")
    new = refreshed(old)
    if not check:
        README.write_text(new, encoding="utf-8")
    elif new != old:
        sys.stderr.write("README.md: a --help block is out of date; run `python docs/update_help.py`\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
