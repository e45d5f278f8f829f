"""docs/reference.md is what the settings classes say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_page_is_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "update_reference.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_lists_show_their_own_length_and_each_entry_its_own_range() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    for line in (
        "| `shape` | list of 3: integer, >= 1, <= 16; integer, >= 4, <= 1024; integer, >= 4, <= 1024 | required |",
        "| `classes` | list, 2 to 10000 entries, each text, 1 to 200 characters | required |",
        "| `delimiter` | text, 1 character, matching ",
    ):
        assert line in page, line
