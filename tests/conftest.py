"""One thread for torch in every test process: tests run side by side, and results do not depend on the core count."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
