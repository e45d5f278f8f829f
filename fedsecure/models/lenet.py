"""The LeNet-type network that FedSPM routes with (FedSPM page, P11)."""

from __future__ import annotations

import torch
from torch import nn

from fedsecure.models.network import Network

__all__ = ["LeNet"]


class LeNet(Network):
    """Twice: 5x5 convolution, group norm, ReLU, 2x2 max pooling; then linear, layer norm, ReLU.

    With (32, 64) channels, 512 hidden units and an embedding of 32 on images (3, 32, 32): 0.89 M parameters, as the
    page has it. The embedding, when there is one, is a plain linear layer.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        num_classes: int,
        channels: tuple[int, int],
        groups: tuple[int, int],
        hidden: int,
        padding: int,
        embedding: int | None = None,
    ) -> None:
        super().__init__()
        maps, height, width = shape
        layers: list[nn.Module] = []
        for out, count in zip(channels, groups, strict=True):
            layers += [nn.Conv2d(maps, out, 5, padding=padding), nn.GroupNorm(count, out), nn.ReLU(), nn.MaxPool2d(2)]
            maps = out
            height, width = ((side + 2 * padding - 4) // 2 for side in (height, width))
        self.blocks = nn.Sequential(*layers)
        self.hidden = nn.Sequential(nn.Linear(maps * height * width, hidden), nn.LayerNorm(hidden), nn.ReLU())
        plain = None if embedding is None else nn.Linear(hidden, embedding)
        self._finish(hidden, num_classes, plain, embedding)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Images (n, channels, H, W) to hidden outputs (n, hidden)."""
        maps: torch.Tensor = self.blocks(x)  # (n, channels[1], H', W')
        hidden: torch.Tensor = self.hidden(maps.flatten(1))  # (n, hidden)
        return hidden
