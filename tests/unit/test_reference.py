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
