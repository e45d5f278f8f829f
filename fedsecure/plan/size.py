"""How large a plan's model and releases can become, from its settings alone.

Each number can be within its own bound while their product is not, and a coordinator or node that believed it would
fill its memory.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, assert_never

from fedsecure.plan.methods import (
    CondensationSettings,
    FedAFSettings,
    FedDRMSettings,
    FedSPMSettings,
    RoutedSettings,
)
from fedsecure.plan.models import ConvNetSettings, LeNetSettings, MLPSettings, ModelSettings, ResNetSettings
from fedsecure.plan.routers import router_of
from fedsecure.plan.task import ImageTask

if TYPE_CHECKING:
    from fedsecure.plan import Plan
    from fedsecure.plan.task import TableTask

__all__ = ["MAX_PARAMETERS", "MAX_RELEASE_BYTES", "check_size", "header_bytes", "parameter_count", "release_bytes"]

#: Parameters of the largest model: 800 MB of float32, over ten times a ResNet-18.
MAX_PARAMETERS = 200_000_000
#: Bytes of the largest contribution of one node.
MAX_RELEASE_BYTES = 1 << 30
#: Bytes of a number as it is, and as an element of a masked vector, whose ring has up to 64 bits.
PLAIN_BYTES, MASKED_BYTES = 4, 8
#: Bytes by which one tensor lengthens the header of its file: its name, dtype, shape and place.
TENSOR_HEADER_BYTES = 200


def parameter_count(model: ModelSettings, task: ImageTask | TableTask) -> int:
    """Trainable parameters of the network that ``model`` names, for ``task``; equal to the built network's."""
    encoder, dim = encoder_size(model, task)
    return encoder + (dim + 1) * len(task.classes)


def encoder_size(model: ModelSettings, task: ImageTask | TableTask) -> tuple[int, int]:
    """(parameters of the network without its head, number of its features)."""
    body, width = _body(model, task)
    if model.embedding is None:
        return body, width
    norm = 0 if isinstance(model, LeNetSettings) else 2 * model.embedding
    return body + (width + 1) * model.embedding + norm, model.embedding


def _body(model: ModelSettings, task: ImageTask | TableTask) -> tuple[int, int]:
    match model:
        case MLPSettings():
            sizes = (_product(task.feature_shape), *model.hidden)
            return sum(a * b + b + 2 * b for a, b in itertools.pairwise(sizes)), sizes[-1]  # linear, layer norm
        case ConvNetSettings():
            return _convnet(model, task)
        case ResNetSettings():
            return _resnet(model, task)
        case LeNetSettings():
            return _lenet(model, task)
        case _:
            assert_never(model)


def _product(numbers: tuple[int, ...]) -> int:
    total = 1
    for number in numbers:
        total *= number
    return total


def _convnet(model: ConvNetSettings, task: ImageTask | TableTask) -> tuple[int, int]:
    channels, height, width = _image_shape(task)
    grown = 4 if channels == 1 and min(height, width) == 28 else 0
    height, width = height + grown, width + grown
    total, maps = 0, channels
    for _ in range(model.depth):
        total += maps * model.width * 9 + model.width + 2 * model.width  # convolution, norm
        maps, height, width = model.width, height // 2, width // 2
    return total, maps * height * width


def _resnet(model: ResNetSettings, task: ImageTask | TableTask) -> tuple[int, int]:
    channels, height, width = _image_shape(task)
    kernel = 9 if max(height, width) <= 64 else 49
    total, maps = channels * model.width * kernel + 2 * model.width, model.width
    for stage, count in enumerate(model.blocks):
        out = model.width * 2**stage
        for position in range(count):
            total += maps * out * 9 + out * out * 9 + 4 * out
            if maps != out or (stage > 0 and position == 0):
                total += maps * out + 2 * out  # the shortcut's projection
            maps = out
    return total, maps


def _lenet(model: LeNetSettings, task: ImageTask | TableTask) -> tuple[int, int]:
    channels, height, width = _image_shape(task)
    total = 0
    for maps in model.channels:
        total += channels * maps * 25 + maps + 2 * maps  # convolution, norm
        channels = maps
    inner = channels * model.side(height) * model.side(width)
    return total + (inner + 1) * model.hidden + 2 * model.hidden, model.hidden


def _image_shape(task: ImageTask | TableTask) -> tuple[int, int, int]:
    if not isinstance(task, ImageTask):
        raise ValueError("this model needs images (allowed for a table: 'mlp')")  # noqa: TRY004 - pydantic makes a line of it
    return task.shape


def release_bytes(plan: Plan) -> int:
    """Bytes of the largest contribution that a node can make to one exchange, headers not counted: with what is summed
    as masked vectors of one session, where the plan may have it masked."""
    number = PLAIN_BYTES if plan.secagg == "off" else MASKED_BYTES
    if isinstance(plan.method, RoutedSettings):
        return number * _routed(plan, plan.method)
    if not isinstance(plan.method, CondensationSettings):
        return number * parameter_count(plan.model, plan.task)
    classes = len(plan.task.classes)
    images = classes * plan.method.ipc * (PLAIN_BYTES * _product(plan.task.feature_shape) + 8)
    statistics = 2 * number * classes * (classes + 1) if isinstance(plan.method, FedAFSettings) else 0
    return images + statistics


def header_bytes(plan: Plan) -> int:
    """Bytes that the headers of one contribution can have, counted generously: the names of its tensors and where they
    lie (safetensors format, both halves)."""
    method, few = plan.method, 10  # lengths, alignment, statistics, counts, images and their labels
    if isinstance(method, CondensationSettings):
        return few * TENSOR_HEADER_BYTES
    tensors = _tensors(plan.model)
    if isinstance(method, RoutedSettings):
        encoders = method.components if isinstance(method, FedSPMSettings) and method.encoders == "separate" else 1
        tensors = encoders * (tensors + _tensors(router_of(method, plan.task)))
    return (few + tensors) * TENSOR_HEADER_BYTES


def _tensors(model: ModelSettings) -> int:
    """At least as many as the network has parameter tensors."""
    match model:
        case MLPSettings():
            layers = len(model.hidden)
        case ConvNetSettings():
            layers = model.depth
        case ResNetSettings():
            layers = 3 * sum(model.blocks)  # two convolutions and a shortcut a block
        case LeNetSettings():
            layers = len(model.channels) + 1
        case _:
            assert_never(model)
    return 4 * (layers + 3)


def _routed(plan: Plan, method: RoutedSettings) -> int:
    """Numbers in one ``update`` of FedSPM or FedDRM (FedSPM page, 2.12), ``mass`` and diagnostics included."""
    theta, width = encoder_size(plan.model, plan.task)
    nodes = len(plan.cohort.nodes)
    if isinstance(method, FedDRMSettings) and method.backbone == "shared":
        return theta + 2 * (width + 3) * method.branch + nodes * (method.branch + 4) + 3
    nu, dim = encoder_size(router_of(method, plan.task), plan.task)
    components = method.components if isinstance(method, FedSPMSettings) else 1
    encoders = components if isinstance(method, FedSPMSettings) and method.encoders == "separate" else 1
    return encoders * (theta + nu) + nodes * components * (dim + 4) + 3


def check_size(plan: Plan) -> None:
    """Raise ``ValueError`` when the model or a release could be larger than the bounds of this module."""
    parameters = parameter_count(plan.model, plan.task)
    if isinstance(plan.method, RoutedSettings):
        parameters = max(parameters, _routed(plan, plan.method))
    if parameters > MAX_PARAMETERS:
        raise ValueError(f"model: {parameters:,} parameters (allowed: <= {MAX_PARAMETERS:,}); lower its width or depth")
    if (size := release_bytes(plan)) > MAX_RELEASE_BYTES:
        raise ValueError(
            f"a release of one node could have {size:,} bytes (allowed: <= {MAX_RELEASE_BYTES:,}); "
            "lower method.ipc, the shape or the number of classes"
        )
