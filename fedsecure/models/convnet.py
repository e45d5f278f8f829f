"""The ConvNet of dataset condensation, which FedAF and FedDM use (FedAF page, section 2.7)."""

from __future__ import annotations

import torch
from torch import nn

from fedsecure.models.network import Network, normed_embedding

__all__ = ["ConvNet", "first_padding"]


def first_padding(shape: tuple[int, int, int]) -> int:
    """Padding of the first convolution: 3 for one channel of 28 pixels, which makes 32 of them; else 1."""
    return 3 if shape[0] == 1 and min(shape[1:]) == 28 else 1


class _Halve(nn.Module):
    """2x2 average pooling by strided sums: on CPUs several times as fast as ``nn.AvgPool2d(2)``, and equal to it.

    An odd last row or column is left out, as there.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = (side - side % 2 for side in x.shape[2:])
        rows = x[:, :, 0:height:2] + x[:, :, 1:height:2]  # (n, maps, H / 2, W)
        return (rows[:, :, :, 0:width:2] + rows[:, :, :, 1:width:2]) * 0.25  # (n, maps, H / 2, W / 2)


class ConvNet(Network):
    """``depth`` blocks of 3x3 convolution, instance norm, ReLU and 2x2 average pooling, then one linear layer.

    The norm is ``GroupNorm(width, width)``, that is one group a channel, with scale and shift. The features are the
    flattened maps of the last block, D = width * (H / 2^depth) * (W / 2^depth) with H and W after the first padding.
    """

    def __init__(
        self, shape: tuple[int, int, int], num_classes: int, depth: int, width: int, embedding: int | None = None
    ) -> None:
        super().__init__()
        channels, height, width_pixels = shape
        padding = first_padding(shape)
        height, width_pixels = height + 2 * (padding - 1), width_pixels + 2 * (padding - 1)
        layers: list[nn.Module] = []
        for block in range(depth):
            layers += [
                nn.Conv2d(channels, width, kernel_size=3, padding=padding if block == 0 else 1),
                nn.GroupNorm(width, width),
                nn.ReLU(),
                _Halve(),
            ]
            channels, height, width_pixels = width, height // 2, width_pixels // 2
        self.blocks = nn.Sequential(*layers)
        inner = width * height * width_pixels
        self._finish(inner, num_classes, normed_embedding(inner, embedding), embedding)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Images (n, channels, H, W) to flattened maps (n, D)."""
        maps: torch.Tensor = self.blocks(x)  # (n, width, H', W')
        return maps.flatten(1)  # (n, D)
