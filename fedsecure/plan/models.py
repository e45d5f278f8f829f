"""Which network a plan trains. A node builds only networks it ships; a plan names one and its sizes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedsecure.config import Settings
from fedsecure.plan.task import ImageTask, TableTask

__all__ = ["ConvNetSettings", "LeNetSettings", "MLPSettings", "ModelSettings", "ResNetSettings", "check_network"]

Width = Annotated[int, Field(ge=1, le=4096)]


class _ModelSettings(Settings):
    """``embedding``: features of the network are put through a linear layer of this width, layer norm and ReLU before
    the head (FedSPM page, P11); left out, the head sees the features as they are."""

    embedding: Width | None = None


class ConvNetSettings(_ModelSettings):
    """FedAF's ConvNet: ``depth`` blocks of 3x3 convolution (``width`` maps), group norm, ReLU, 2x2 average
    pooling."""

    name: Literal["convnet"]
    depth: int = Field(3, ge=1, le=8)
    width: Width = 128


class ResNetSettings(_ModelSettings):
    """ResNet with group normalisation: one entry of ``blocks`` a stage, widths doubling from ``width``."""

    name: Literal["resnet"]
    blocks: tuple[Annotated[int, Field(ge=1, le=32)], ...] = Field((1, 1, 1), min_length=1, max_length=6)
    width: Width = 16
    groups: Annotated[int, Field(ge=1, le=256)] = 8

    @model_validator(mode="after")
    def _divisible(self) -> ResNetSettings:
        if self.width % self.groups:
            raise ValueError(f"groups {self.groups} does not divide width {self.width}")
        return self


class MLPSettings(_ModelSettings):
    """Fully connected layers with layer normalisation and ReLU, for tables and small images."""

    name: Literal["mlp"]
    hidden: tuple[Width, ...] = Field((64, 64), min_length=1, max_length=16)


class LeNetSettings(_ModelSettings):
    """Two 5x5 convolutions, each with group norm, ReLU and 2x2 max pooling, then one hidden layer: FedSPM's routing
    encoder (FedSPM page, P11). ``padding`` 2 keeps small images from vanishing in the convolutions. Its ``embedding``
    is a plain linear layer: what routing is linear in."""

    name: Literal["lenet"]
    channels: tuple[Width, Width] = (32, 64)
    groups: tuple[Annotated[int, Field(ge=1, le=256)], Annotated[int, Field(ge=1, le=256)]] = (8, 16)
    hidden: Width = 512
    padding: int = Field(0, ge=0, le=2)

    @model_validator(mode="after")
    def _divisible(self) -> LeNetSettings:
        for maps, groups in zip(self.channels, self.groups, strict=True):
            if maps % groups:
                raise ValueError(f"groups {groups} does not divide {maps} channels")
        return self

    def side(self, pixels: int) -> int:
        """What is left of ``pixels`` in a row or column after both blocks; 0 when nothing is."""
        for _ in self.channels:
            pixels = (pixels + 2 * self.padding - 4) // 2
        return max(pixels, 0)


ModelSettings = Annotated[ConvNetSettings | ResNetSettings | LeNetSettings | MLPSettings, Field(discriminator="name")]


def check_network(key: str, model: ModelSettings, task: ImageTask | TableTask) -> None:
    """Raise ``ValueError`` naming ``key`` unless the network can look at the task's records."""
    if isinstance(model, MLPSettings):
        return
    if not isinstance(task, ImageTask):
        raise ValueError(f"{key}.name {model.name!r} needs images (allowed for a table: 'mlp')")  # noqa: TRY004 - pydantic makes a line of it
    side = min(task.shape[1:])
    if isinstance(model, ConvNetSettings) and side + _grown(task) < 2**model.depth:
        most = side.bit_length() - 1
        raise ValueError(f"{key}.depth {model.depth} halves {side} pixels below one (allowed: <= {most})")
    if isinstance(model, LeNetSettings) and not model.side(side):
        raise ValueError(f"{key}: two 5x5 convolutions leave nothing of {side} pixels (allowed: padding = 2)")


def _grown(task: ImageTask) -> int:
    """Pixels that the ConvNet's first padding adds to a side."""
    return 4 if task.shape[0] == 1 and min(task.shape[1:]) == 28 else 0
