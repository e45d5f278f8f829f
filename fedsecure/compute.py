"""Which device and how many CPU threads a process computes with: one answer for nodes, coordinator and simulations."""

from __future__ import annotations

import re

from pydantic import Field

from fedsecure.config import Settings
from fedsecure.errors import ConfigError

__all__ = ["ComputeSettings", "choose_device", "set_threads"]

#: Names of devices, as settings and command lines may give them.
DEVICE = r"^(auto|cpu|mps|cuda(:[0-9]{1,3})?)$"


class ComputeSettings(Settings):
    """Where this side computes. `auto` takes a GPU when there is one. `threads`: CPU threads, 0 for PyTorch's own
    choice; results are bit-equal only for equal devices and thread counts."""

    device: str = Field("auto", pattern=DEVICE)
    threads: int = Field(0, ge=0, le=1024)

    def apply(self) -> str:
        """Bound this process's threads, and return the device to use. Raises ``ConfigError`` when it is not there."""
        set_threads(self.threads)
        return choose_device(self.device, "compute.device")


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
