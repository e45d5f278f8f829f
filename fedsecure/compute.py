"""Which device and how many CPU threads a process computes with: one answer for nodes, coordinator and simulations."""

from __future__ import annotations

import ctypes
import re

from pydantic import Field

from fedsecure.config import Settings, named_pattern
from fedsecure.errors import ConfigError

__all__ = ["ComputeSettings", "choose_device", "keep_freed_memory", "prepare", "set_threads"]

#: Names of devices, as settings and command lines may give them.
DEVICE = r"^(auto|cpu|mps|cuda(:[0-9]{1,3})?)$"


class ComputeSettings(Settings):
    """Where this side computes. `auto` takes a GPU when there is one. `threads`: CPU threads, 0 for PyTorch's own
    choice; results are bit-equal only for equal devices and thread counts."""

    device: str = Field("auto", pattern=named_pattern(DEVICE, "a device: auto, cpu, mps, cuda or cuda:N"))
    threads: int = Field(0, ge=0, le=1024)

    def apply(self) -> str:
        """Bound this process's threads, and return the device to use. Raises ``ConfigError`` when it is not there."""
        return prepare(self.device, self.threads, "compute.device")


def prepare(device: str, threads: int, what: str = "device") -> str:
    """Make this process ready to compute: memory, threads (0 leaves PyTorch's own choice), and the device's name.

    Raises ``ConfigError`` as ``choose_device`` does.
    """
    keep_freed_memory()
    set_threads(threads)
    return choose_device(device, what)


def choose_device(name: str, what: str = "device") -> str:
    """The torch device that ``name`` means on this machine; ``auto`` is ``cuda`` where there is one, else ``cpu``.

    ``what`` names the setting in messages. Raises ``ConfigError`` for a name we do not know or a device that is absent.
    """
    import torch

    if not re.fullmatch(DEVICE, name):
        raise ConfigError(f"{what}: {name[:40]!r} is not known (allowed: auto, cpu, cuda, cuda:N, mps)")
    kind, _, index = name.partition(":")
    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "auto":
        return "cuda" if cuda else "cpu"
    if (kind == "cuda" and int(index or 0) >= cuda) or (kind == "mps" and not torch.backends.mps.is_available()):
        raise ConfigError(f"{what}: {name} is not there on this machine", hint="use auto or cpu")
    return name


def set_threads(threads: int) -> None:
    """Bound torch's CPU threads; 0 leaves its own choice."""
    import torch

    if threads:
        torch.set_num_threads(threads)


#: Parameters of glibc's ``mallopt`` (malloc.h), and what they are set to (bytes).
_MALLOPT = {-3: 1 << 30, -1: (1 << 31) - 1, -2: 64 << 20}  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory for the next step instead of returning it to the kernel; whether it could.

    Every step of training frees and takes again the same tens of megabytes of activations. By default glibc maps and
    unmaps them each time, and the page faults cost a third to a half of a small network's time on a CPU. With another
    C library nothing happens.
    """
    try:
        libc = ctypes.CDLL(None)
        return all(libc.mallopt(parameter, value) == 1 for parameter, value in _MALLOPT.items())
    except (OSError, AttributeError, TypeError):
        return False
