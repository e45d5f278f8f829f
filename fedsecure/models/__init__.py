"""The networks that a plan may name, and their parameters as tensors that travel."""

from __future__ import annotations

import math
from typing import assert_never

import numpy as np
import torch
from torch import nn

from fedsecure.errors import ConfigError, DataError
from fedsecure.models.convnet import ConvNet
from fedsecure.models.encoder import Encoder, encode
from fedsecure.models.initialisation import draw_parameters, materialise
from fedsecure.models.lenet import LeNet
from fedsecure.models.mlp import MLP
from fedsecure.models.network import Network, Parameters, outputs, parameters_of
from fedsecure.models.resnet import ResNet
from fedsecure.parameter_specs import PARAMETER_BOUND, encoder_specs, state_specs
from fedsecure.plan.models import ConvNetSettings, LeNetSettings, MLPSettings, ModelSettings, ResNetSettings
from fedsecure.plan.task import ImageTask, Task
from fedsecure.randomness import torch_generator
from fedsecure.tensors import Tensors

__all__ = [
    "PARAMETER_BOUND",
    "Encoder",
    "Network",
    "Parameters",
    "blank_encoder",
    "blank_network",
    "build_model",
    "draw_parameters",
    "encode",
    "encoder_specs",
    "load_state",
    "outputs",
    "parameters_of",
    "standardise",
    "state_of",
    "state_specs",
    "to_parameters",
    "to_tensors",
]


def _construct(settings: ModelSettings, task: Task) -> Network:
    num_classes, dim = len(task.classes), settings.embedding
    if isinstance(settings, MLPSettings):
        return MLP(math.prod(task.feature_shape), num_classes, settings.hidden, dim)
    if not isinstance(task, ImageTask):
        raise ConfigError(f"model.name: {settings.name!r} needs images (allowed for a table: 'mlp')")
    match settings:
        case ConvNetSettings():
            return ConvNet(task.shape, num_classes, settings.depth, settings.width, dim)
        case ResNetSettings():
            return ResNet(task.shape, num_classes, settings.blocks, settings.width, settings.groups, dim)
        case LeNetSettings():
            lenet = settings
            return LeNet(
                task.shape, num_classes, lenet.channels, lenet.groups, lenet.hidden, lenet.padding, lenet.embedding
            )
        case _:
            assert_never(settings)


def build_model(settings: ModelSettings, task: Task, seed: int) -> Network:
    """The network of a plan, initialised from ``seed`` alone; PyTorch's global generator is neither read nor moved.

    Raises ``ConfigError`` when the network does not go with the task.
    """
    return materialise(lambda: _construct(settings, task), torch_generator(seed, "model"))


def blank_network(settings: ModelSettings, task: Task) -> Network:
    """The network's structure on the meta device, to be run with ``outputs`` under parameters given there."""
    with torch.device("meta"):
        return _construct(settings, task)


def blank_encoder(settings: ModelSettings, task: Task) -> Encoder:
    """The network without its head, its structure on the meta device."""
    with torch.device("meta"):
        return Encoder(_construct(settings, task))


def to_tensors(parameters: Parameters) -> Tensors:
    """Torch parameters as numpy float32 that travel."""
    return Tensors({n: p.detach().to("cpu", torch.float32).numpy().copy() for n, p in parameters.items()})


def to_parameters(state: Tensors, device: str = "cpu") -> Parameters:
    """Tensors that travelled as torch parameters, float32, without gradients."""
    return {n: torch.tensor(np.asarray(a), dtype=torch.float32, device=device) for n, a in state.items()}


def state_of(module: nn.Module) -> Tensors:
    """A network's parameters by dotted name, float32."""
    return to_tensors(dict(module.named_parameters()))


def load_state(module: nn.Module, state: Tensors) -> None:
    """Put ``state`` into a network. Raises ``DataError`` naming a tensor that is missing, unknown or misshapen."""
    own = dict(module.named_parameters())
    for name in sorted(set(own) | set(state)):
        if name not in state:
            raise DataError(f"tensor {name}: the model has it but the state does not", hint=_OTHER_PLAN)
        if name not in own:
            raise DataError(f"tensor {name}: the state has it but the model does not", hint=_OTHER_PLAN)
        if state[name].shape != tuple(own[name].shape):
            due = list(own[name].shape)
            raise DataError(f"tensor {name}: shape {list(state[name].shape)} where {due} is due", hint=_OTHER_PLAN)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(torch.tensor(np.asarray(state[name]), dtype=parameter.dtype))


_OTHER_PLAN = "the state belongs to another plan; use the plan it was trained with"


def standardise(task: Task, x: torch.Tensor) -> torch.Tensor:
    """Records as data sets hold them, (n, *shape), as networks see them: images ``(x - mean) / std`` per channel.

    Rows of a table are encoded and scaled when they are read, so they pass unchanged.
    """
    if not isinstance(task, ImageTask):
        return x
    mean = torch.tensor(task.mean, dtype=x.dtype, device=x.device).reshape(1, -1, 1, 1)
    std = torch.tensor(task.std, dtype=x.dtype, device=x.device).reshape(1, -1, 1, 1)
    return (x - mean) / std
