"""Fully connected network for tables and small images."""

from __future__ import annotations

import torch
from torch import nn

from fedsecure.models.network import Network, normed_embedding

__all__ = ["MLP"]


class MLP(Network):
    """For each entry of ``hidden``: linear, layer norm, ReLU; then one linear layer. Records are flattened first.

    The features are the last hidden layer's outputs, D = hidden[-1].
    """

    def __init__(
        self, num_inputs: int, num_classes: int, hidden: tuple[int, ...], embedding: int | None = None
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width_in = num_inputs
        for width in hidden:
            layers += [nn.Linear(width_in, width), nn.LayerNorm(width), nn.ReLU()]
            width_in = width
        self.layers = nn.Sequential(*layers)
        self._finish(width_in, num_classes, normed_embedding(width_in, embedding), embedding)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Records (n, *shape) to hidden outputs (n, D)."""
        hidden: torch.Tensor = self.layers(x.flatten(1))  # (n, D)
        return hidden
