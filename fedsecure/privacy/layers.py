"""Whether DP-SGD's claim holds for a module: its records are kept apart, and nothing moves outside the mechanism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedsecure.errors import ConfigError

__all__ = ["check_layers", "check_leaves", "check_losses", "check_module"]


def check_module(module: nn.Module, moved: Sequence[str]) -> None:
    """Raise ``ConfigError`` unless ``moved`` names each parameter of ``module`` once, all of them need gradients, and
    every layer keeps records apart.

    A head that is trained on the records otherwise, without noise, makes the gradient of every other record depend on
    each: one record's leaving then moves the clipped sum by more than the clip, though the head itself never leaves.
    """
    check_layers(module)
    parameters, times = dict(module.named_parameters()), Counter(moved)
    for name, p in parameters.items():
        if times[name] > 1:
            raise ConfigError(f"parameter {name}: is in two groups")
        if not times[name] or not p.requires_grad:
            raise _outside(f"parameter {name}")
    for name in sorted(set(times) - set(parameters)):
        raise ConfigError(f"parameter {name}: the module has none of that name")


def check_layers(module: nn.Module) -> None:
    """Raise ``ConfigError`` naming a layer whose output for one record depends on others, or that Opacus cannot
    differentiate record by record."""
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        if isinstance(layer, _BatchNorm) or any(True for _ in layer.buffers(recurse=False)):
            raise ConfigError(
                f"layer {name} ({kind}): its output for one record depends on others, which no clip can bound",
                hint="use GroupNorm or LayerNorm",
            )
        if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
            raise ConfigError(f"layer {name} ({kind}): has no gradients of single records", hint="use another layer")


def check_losses(losses: torch.Tensor, count: int) -> None:
    """Raise ``ConfigError`` unless there is a loss for each of ``count`` records: a mean over the batch, weighted or
    not, lets each record's gradient depend on the others."""
    if losses.shape != (count,):
        raise ConfigError(f"a loss of shape {list(losses.shape)} where one for each of {count} records is due")


def check_leaves(losses: torch.Tensor, parameters: Sequence[torch.Tensor]) -> None:
    """Raise ``ConfigError`` when ``losses`` have a gradient for something else than ``parameters``."""
    known, seen, ahead = {id(p) for p in parameters}, set[object](), [losses.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            raise _outside(f"a tensor of shape {list(leaf.shape)}")
        ahead += [following for following, _ in node.next_functions]


def _outside(what: str) -> ConfigError:
    return ConfigError(
        f"{what}: is outside the mechanism, so that a record moves the clipped sum by more than the clip",
        hint="what learns from the records, local heads included, belongs into a group",
    )
