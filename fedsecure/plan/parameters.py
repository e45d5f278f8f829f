"""Names and shapes of a network's parameters, from its settings alone: what a plan is shown and measured by, before
anything is built. Equal to those of the built network (``fedsecure.models``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import assert_never

from fedsecure.plan.models import ConvNetSettings, LeNetSettings, MLPSettings, ModelSettings, ResNetSettings
from fedsecure.plan.task import ImageTask, TableTask

__all__ = ["Shape", "Shapes", "encoder_shapes", "feature_width", "normed_linear", "parameter_shapes"]

Shape = tuple[int, ...]
#: Parameters by dotted name.
Shapes = dict[str, Shape]


def parameter_shapes(model: ModelSettings, task: ImageTask | TableTask) -> Shapes:
    """Of the whole network, in name order. ``ValueError`` for a network that needs images, and a table."""
    head = _linear("head", feature_width(model, task), len(task.classes))
    return dict(sorted([*encoder_shapes(model, task).items(), *head]))


def encoder_shapes(model: ModelSettings, task: ImageTask | TableTask) -> Shapes:
    """Of the network without its head, in name order. ``ValueError`` as ``parameter_shapes``."""
    shapes = [*_body(model, task)]
    if model.embedding is not None:
        width = _body_width(model, task)
        layers = _linear if isinstance(model, LeNetSettings) else _normed
        shapes += layers("embedding", width, model.embedding)
    return dict(sorted(shapes))


def feature_width(model: ModelSettings, task: ImageTask | TableTask) -> int:
    """How many features the head sees. ``ValueError`` as ``parameter_shapes``."""
    return _body_width(model, task) if model.embedding is None else model.embedding


def normed_linear(inputs: int, outputs: int) -> Shapes:
    """Of a linear layer and its layer norm, in name order."""
    return dict(sorted(_normed("", inputs, outputs)))


def _linear(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Iterator[tuple[str, Shape]]:
    """Layer norm or group norm: scale and shift."""
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _normed(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, Shape]]:
    dot = f"{name}." if name else ""
    yield from _linear(f"{dot}0", inputs, outputs)
    yield from _norm(f"{dot}1", outputs)


def _body(model: ModelSettings, task: ImageTask | TableTask) -> Iterator[tuple[str, Shape]]:
    match model:
        case MLPSettings():
            width = math.prod(task.feature_shape)
            for layer, units in enumerate(model.hidden):
                yield from _linear(f"layers.{3 * layer}", width, units)
                yield from _norm(f"layers.{3 * layer + 1}", units)
                width = units
        case ConvNetSettings():
            maps = _image_shape(task)[0]
            for block in range(model.depth):
                yield f"blocks.{4 * block}.weight", (model.width, maps, 3, 3)
                yield f"blocks.{4 * block}.bias", (model.width,)
                yield from _norm(f"blocks.{4 * block + 1}", model.width)
                maps = model.width
        case ResNetSettings():
            yield from _resnet(model, _image_shape(task))
        case LeNetSettings():
            maps = _image_shape(task)[0]
            for block, out in enumerate(model.channels):
                yield f"blocks.{4 * block}.weight", (out, maps, 5, 5)
                yield f"blocks.{4 * block}.bias", (out,)
                yield from _norm(f"blocks.{4 * block + 1}", out)
                maps = out
            _, height, width = _image_shape(task)
            yield from _normed("hidden", maps * model.side(height) * model.side(width), model.hidden)
        case _:
            assert_never(model)


def _resnet(model: ResNetSettings, shape: tuple[int, int, int]) -> Iterator[tuple[str, Shape]]:
    kernel, maps, number = 3 if max(shape[1:]) <= 64 else 7, model.width, 0
    yield "stem.0.weight", (maps, shape[0], kernel, kernel)
    yield from _norm("stem.1", maps)
    for stage, count in enumerate(model.blocks):
        out = model.width * 2**stage
        for position in range(count):
            block = f"stages.{number}"
            yield f"{block}.conv1.weight", (out, maps, 3, 3)
            yield from _norm(f"{block}.norm1", out)
            yield f"{block}.conv2.weight", (out, out, 3, 3)
            yield from _norm(f"{block}.norm2", out)
            if maps != out or (stage > 0 and position == 0):
                yield f"{block}.shortcut.0.weight", (out, maps, 1, 1)
                yield from _norm(f"{block}.shortcut.1", out)
            maps, number = out, number + 1


def _body_width(model: ModelSettings, task: ImageTask | TableTask) -> int:
    """Outputs of the network's body."""
    match model:
        case MLPSettings():
            return model.hidden[-1]
        case ConvNetSettings():
            channels, height, width = _image_shape(task)
            grown = 4 if channels == 1 and min(height, width) == 28 else 0
            return model.width * ((height + grown) >> model.depth) * ((width + grown) >> model.depth)
        case ResNetSettings():
            return model.width << (len(model.blocks) - 1)
        case LeNetSettings():
            return model.hidden
        case _:
            assert_never(model)


def _image_shape(task: ImageTask | TableTask) -> tuple[int, int, int]:
    if not isinstance(task, ImageTask):
        raise ValueError("this model needs images (allowed for a table: 'mlp')")  # noqa: TRY004 - pydantic makes a line of it
    return task.shape
