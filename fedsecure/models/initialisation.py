"""PyTorch's default initialisers with the generator as an argument, so that no draw touches the global state."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from fedsecure.models.network import Network, Parameters

__all__ = ["draw_parameters", "materialise"]


def draw_parameters(network: nn.Module, generator: torch.Generator) -> Parameters:
    """A fresh draw of every parameter, float32 on the CPU, distributed as PyTorch's own constructors draw them.

    Convolutions and linear layers: weight and bias uniform on (-1/sqrt(fan_in), 1/sqrt(fan_in)), which is Kaiming's
    uniform rule with a = sqrt(5) (PyTorch's ``reset_parameters``). Group and layer norm: scale 1, shift 0. The network
    itself, which may live on the meta device, gives only shapes. Raises ``TypeError`` for a layer not known here.
    """
    drawn: Parameters = {}
    for prefix, layer in network.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        if not own:
            continue
        stem = f"{prefix}." if prefix else ""
        for name, parameter in own.items():
            drawn[stem + name] = _draw(layer, name, tuple(parameter.shape), generator)
    return drawn


def _draw(layer: nn.Module, name: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if isinstance(layer, (nn.GroupNorm, nn.LayerNorm)):
        return torch.ones(shape) if name == "weight" else torch.zeros(shape)
    if isinstance(layer, nn.Conv2d):
        fan_in = layer.in_channels // layer.groups * math.prod(layer.kernel_size)
    elif isinstance(layer, nn.Linear):
        fan_in = layer.in_features
    else:
        raise TypeError(f"no initialiser for a layer of kind {type(layer).__name__}")
    bound = 1.0 / math.sqrt(fan_in)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)


def materialise(build: Callable[[], Network], generator: torch.Generator) -> Network:
    """The network that ``build`` constructs, parameters drawn from ``generator``; the global state stays untouched."""
    with torch.device("meta"):
        network = build()
    parameters = draw_parameters(network, generator)
    network.to_empty(device="cpu")
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(parameters[name])
    return network
