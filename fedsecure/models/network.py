"""What every network offers: features and logits, in one pass and under any set of parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.func import functional_call

__all__ = ["Network", "Parameters", "normed_embedding", "outputs", "parameters_of"]

#: Parameters of a network by dotted name, as ``named_parameters`` names them.
Parameters = dict[str, torch.Tensor]


class Network(nn.Module):
    """Base of the networks: ``body`` maps records to (n, D'), ``embedding`` those to features (n, D), where it is one,
    and the linear ``head`` the features to logits (n, C)."""

    embedding: nn.Module
    head: nn.Linear

    def _finish(self, width: int, num_classes: int, embedding: nn.Module | None, dim: int | None) -> None:
        """Put the ends on a body of ``width`` outputs: ``embedding``, which has ``dim`` outputs, and the head."""
        self.embedding = nn.Identity() if embedding is None else embedding
        self.head = nn.Linear(width if dim is None else dim, num_classes)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Standardised records (n, *shape) to the body's outputs (n, D')."""
        raise NotImplementedError(f"{type(self).__name__} defines no body")

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Standardised records (n, *shape) to features (n, D)."""
        embedded: torch.Tensor = self.embedding(self.body(x))  # (n, D)
        return embedded

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Standardised records (n, *shape) to logits (n, C)."""
        return self.logits(self.features(x))

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        """Features (n, D) to logits (n, C)."""
        logits: torch.Tensor = self.head(features)
        return logits


def normed_embedding(width: int, dim: int | None) -> nn.Module | None:
    """Linear(width, dim), layer norm, ReLU; ``None`` for no ``dim``."""
    return None if dim is None else nn.Sequential(nn.Linear(width, dim), nn.LayerNorm(dim), nn.ReLU())


class _Both(nn.Module):
    """A view of a network whose forward pass gives features and logits together."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.network.features(x)  # (n, D)
        return features, self.network.logits(features)  # (n, D), (n, C)


def outputs(network: Network, parameters: Mapping[str, torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Features (n, D) and logits (n, C) of standardised records ``x`` (n, *shape) under ``parameters``.

    ``parameters`` stand in for the network's own for this one pass and are not written to; the network's own are
    neither read nor changed.
    """
    stand_in = {f"network.{name}": tensor for name, tensor in parameters.items()}
    both: tuple[torch.Tensor, ...] = functional_call(_Both(network), stand_in, (x,), strict=True)
    return both


def parameters_of(network: nn.Module) -> Parameters:
    """Detached copies of a network's parameters."""
    return {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
