"""Tests of the attacks share small audits of made-up people (``audited_people``)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
