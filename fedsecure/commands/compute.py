"""Which device and how many threads a command computes with."""

from __future__ import annotations

from fedsecure.errors import ConfigError

__all__ = ["choose_device", "set_threads"]


def choose_device(device: str) -> str:
    """``auto`` picks ``cuda`` where there is one. Raises ``ConfigError`` for a name we do not know or cannot have."""
    import torch

    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device {device!r} is not known (allowed: auto, cpu, cuda)")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device cuda: there is none on this machine", hint="use auto or cpu")
    return "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"


def set_threads(threads: int) -> None:
    """Bound torch's CPU threads; 0 leaves its own choice. Results are bit-equal only for equal thread counts."""
    import torch

    if threads:
        torch.set_num_threads(threads)
