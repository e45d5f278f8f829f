"""ResNet with group normalisation instead of batch normalisation: no batch statistics, so nothing of other records
in a record's output (He et al. 2016, basic blocks; Wu and He 2018)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from fedsecure.models.network import Network, normed_embedding

__all__ = ["ResNet"]

#: Images of at most this many pixels a side get a 3x3 stem that keeps the resolution (ResNet for CIFAR).
SMALL_SIDE = 64


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, projected by a 1x1 convolution where the shape changes."""

    def __init__(self, channels: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(groups, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, width)
        same = stride == 1 and channels == width
        self.shortcut = (
            nn.Sequential()
            if same
            else nn.Sequential(nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.GroupNorm(groups, width))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))  # (n, width, H', W')
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))  # (n, width, H', W')


class ResNet(Network):
    """Stages of basic blocks; stage s has width * 2^s maps and, from the second on, half the resolution.

    Blocks (1, 1, 1) make ResNet-8, (2, 2, 2, 2) with width 64 ResNet-18. Features: maps averaged over positions,
    D = width * 2^(stages - 1). Images of up to 64 pixels a side enter through one 3x3 convolution, larger ones
    through the 7x7 convolution with stride 2 and max pooling of the original.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        num_classes: int,
        blocks: tuple[int, ...],
        width: int,
        groups: int,
        embedding: int | None = None,
    ) -> None:
        super().__init__()
        small = max(shape[1:]) <= SMALL_SIDE
        stem: list[nn.Module] = [
            nn.Conv2d(shape[0], width, 3, padding=1, bias=False)
            if small
            else nn.Conv2d(shape[0], width, 7, stride=2, padding=3, bias=False),
            nn.GroupNorm(groups, width),
            nn.ReLU(),
        ]
        self.stem = nn.Sequential(*stem, *([] if small else [nn.MaxPool2d(3, stride=2, padding=1)]))
        stages: list[nn.Module] = []
        channels = width
        for stage, count in enumerate(blocks):
            for position in range(count):
                stride = 2 if stage > 0 and position == 0 else 1
                stages.append(_Block(channels, width * 2**stage, stride, groups))
                channels = width * 2**stage
        self.stages = nn.Sequential(*stages)
        self._finish(channels, num_classes, normed_embedding(channels, embedding), embedding)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Images (n, channels, H, W) to averaged maps (n, D)."""
        maps: torch.Tensor = self.stages(self.stem(x))  # (n, D, H', W')
        return maps.mean(dim=(2, 3))  # (n, D)
