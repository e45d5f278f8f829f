"""SGD and Adam by PyTorch's functional optimisers, bit for bit as ``torch.optim.SGD`` and ``torch.optim.Adam``.

The classes of ``torch.optim`` import the compiler (``torch._dynamo``: 3 s of a core, 150 MB) when the first of them
is made; fedsecure compiles nothing, and a node trains its first step that much sooner without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

__all__ = ["SGD", "Adam", "Optimizer"]


class Optimizer:
    """Moves ``parameters``, leaves with gradients in ``.grad``, in place; one without a gradient stays where it is."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._parameters = list(parameters)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        """One step down the gradients."""
        held = [index for index, parameter in enumerate(self._parameters) if parameter.grad is not None]
        parameters = [self._parameters[index] for index in held]
        with torch.no_grad():
            self._move(held, parameters, [p.grad for p in parameters if p.grad is not None])

    def _move(self, held: list[int], parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        """Move ``parameters``, which are those with the indices ``held``."""
        raise NotImplementedError


class SGD(Optimizer):
    """Stochastic gradient descent with ``momentum``, which starts at zero, and L2 ``weight_decay``."""

    def __init__(
        self, parameters: Sequence[torch.Tensor], *, lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        super().__init__(parameters)
        self._lr, self._momentum, self._weight_decay = lr, momentum, weight_decay
        self._velocities: list[torch.Tensor | None] = [None] * len(self._parameters)

    def _move(self, held: list[int], parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        velocities = [self._velocities[index] for index in held]
        sgd(
            parameters,
            gradients,
            velocities,
            lr=self._lr,
            momentum=self._momentum,
            weight_decay=self._weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        for index, velocity in zip(held, velocities, strict=True):
            self._velocities[index] = velocity


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015) with the published beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8; L2 ``weight_decay``."""

    def __init__(self, parameters: Sequence[torch.Tensor], *, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(parameters)
        self._lr, self._weight_decay = lr, weight_decay
        self._steps = [torch.zeros((), dtype=torch.float32) for _ in self._parameters]
        self._first = [torch.zeros_like(p) for p in self._parameters]
        self._second = [torch.zeros_like(p) for p in self._parameters]

    def _move(self, held: list[int], parameters: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        adam(
            parameters,
            gradients,
            [self._first[index] for index in held],
            [self._second[index] for index in held],
            [],
            [self._steps[index] for index in held],
            lr=self._lr,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            weight_decay=self._weight_decay,
            amsgrad=False,
            maximize=False,
        )
