"""Which network a plan trains. A node builds only networks it ships; a plan names one and its sizes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedsecure.config import Settings

__all__ = ["ConvNetSettings", "MLPSettings", "ModelSettings", "ResNetSettings"]

Width = Annotated[int, Field(ge=1, le=4096)]


class ConvNetSettings(Settings):
    """FedAF's ConvNet: ``depth`` blocks of 3x3 convolution (``width`` maps), group norm, ReLU, 2x2 average
    pooling."""

    name: Literal["convnet"]
    depth: int = Field(3, ge=1, le=8)
    width: Width = 128


class ResNetSettings(Settings):
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


class MLPSettings(Settings):
    """Fully connected layers with layer normalisation and ReLU, for tables and small images."""

    name: Literal["mlp"]
    hidden: tuple[Width, ...] = Field((64, 64), min_length=1, max_length=16)


ModelSettings = Annotated[ConvNetSettings | ResNetSettings | MLPSettings, Field(discriminator="name")]
