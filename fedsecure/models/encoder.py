"""A network without its head: what FedSPM and FedDRM share among the nodes, while heads stay where they are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.func import functional_call

from fedsecure.models.network import Network

__all__ = ["Encoder", "encode"]


class Encoder(nn.Module):
    """The features of a network, (n, *shape) to (n, ``dim``); its head is dropped."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.dim = int(network.head.in_features)
        network.head = nn.Identity()  # type: ignore[assignment]
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Standardised records (n, *shape) to features (n, dim)."""
        return self.network.features(x)


def encode(encoder: Encoder, parameters: Mapping[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Features (n, dim) of standardised records ``x`` under ``parameters``, which stand in for the encoder's own.

    They are named as the network names them.
    """
    stand_in = {f"network.{name}": tensor for name, tensor in parameters.items()}
    features: torch.Tensor = functional_call(encoder, stand_in, (x,), strict=True)
    return features
