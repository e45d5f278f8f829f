"""How large a plan's model and releases can become, from its settings alone.

Each number can be within its own bound while their product is not, and a coordinator or node that believed it would
fill its memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, assert_never

from fedsecure.plan.methods import (
    CondensationSettings,
    FedAFSettings,
    FedDRMSettings,
    FedSPMSettings,
    RoutedSettings,
)
from fedsecure.plan.models import ConvNetSettings, LeNetSettings, MLPSettings, ModelSettings, ResNetSettings
from fedsecure.plan.parameters import encoder_shapes, feature_width
from fedsecure.plan.routers import router_of
from fedsecure.plan.task import ImageTask, TableTask

if TYPE_CHECKING:
    from fedsecure.plan import Plan

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
    return sum(map(math.prod, encoder_shapes(model, task).values())), feature_width(model, task)


def release_bytes(plan: Plan) -> int:
    """Bytes of the largest contribution that a node can make to one exchange, headers not counted: with what is summed
    as masked vectors of one session, where the plan may have it masked."""
    number = PLAIN_BYTES if plan.secagg == "off" else MASKED_BYTES
    if isinstance(plan.method, RoutedSettings):
        return number * _routed(plan, plan.method)
    if not isinstance(plan.method, CondensationSettings):
        return number * parameter_count(plan.model, plan.task)
    classes = len(plan.task.classes)
    images = classes * plan.method.ipc * (PLAIN_BYTES * math.prod(plan.task.feature_shape) + 8)
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
