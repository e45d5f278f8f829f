"""Devices are named, and the allocator's tuning is really taken by the C library."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedsecure.compute import choose_device, prepare
from fedsecure.errors import ConfigError


def test_what_is_not_a_device_is_named() -> None:
    with pytest.raises(ConfigError, match="compute.device: 'gpu' is not known"):
        choose_device("gpu", "compute.device")
    with pytest.raises(ConfigError, match="cuda:99 is not there"):
        choose_device("cuda:99")
    assert prepare("cpu", 1) == "cpu"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="page faults are counted as Linux does")
def test_freed_memory_is_kept_for_the_next_step() -> None:
    """Taking and freeing the same 64 MB again and again faults far less often once the C library keeps it."""
    script = (
        "import sys, resource, torch\n"
        "from fedsecure.compute import keep_freed_memory\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(12): torch.ones(1 << 24)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "plain = faults()\n"
        "if not keep_freed_memory(): sys.exit(3)\n"
        "print(plain, faults())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False)
    if done.returncode == 3:
        pytest.skip("the C library of this machine has no mallopt")
    plain, kept = map(int, done.stdout.split())
    assert kept < plain / 2
