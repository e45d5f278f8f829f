"""Modules beside the tests that are no tests themselves (``charging``) can be imported by them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
