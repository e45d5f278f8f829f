"""A network's parameters as tensors that may travel: name, shape and range."""

from __future__ import annotations

from fedsecure.plan.models import ModelSettings
from fedsecure.plan.parameters import Shapes, encoder_shapes, parameter_shapes
from fedsecure.plan.task import Task
from fedsecure.schema import TensorSpec

__all__ = ["PARAMETER_BOUND", "encoder_specs", "specs_of", "state_specs"]

#: No parameter of a network that trains sensibly comes near this size: beyond it a network has diverged.
PARAMETER_BOUND = 1e3


def state_specs(settings: ModelSettings, task: Task) -> tuple[TensorSpec, ...]:
    """Name, shape and range of every parameter: float32 within ±``PARAMETER_BOUND``, in name order."""
    return specs_of(parameter_shapes(settings, task))


def encoder_specs(settings: ModelSettings, task: Task) -> tuple[TensorSpec, ...]:
    """``state_specs`` without those of the head."""
    return specs_of(encoder_shapes(settings, task))


def specs_of(shapes: Shapes, prefix: str = "", of: str = "model") -> tuple[TensorSpec, ...]:
    """One for each of ``shapes``, its name after ``prefix``; ``of``: whose parameters they are, in words."""
    bound = PARAMETER_BOUND
    return tuple(
        TensorSpec(f"{prefix}{name}", "float32", shape, -bound, bound, f"a parameter of the {of}")
        for name, shape in shapes.items()
    )
