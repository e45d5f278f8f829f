"""DP-SGD (Abadi et al. 2016) under Opacus: per-record gradients, one flat clip over all that a record touches, noise.

A step draws a Poisson batch (rate q = batch / n), takes the gradient of every record's own loss over all parameters at
once, clips it to norm ``clip``, adds the noise of a ``NoiseSource`` to the sum, divides by q n, which no batch decides,
and hands that to SGD. Momentum, rates and weight decay see noisy gradients alone. An empty batch is a step like any
other. Opacus gives the per-record gradients (hooks) and the way in which a batch larger than memory is taken in parts;
sampling, clipping and noise are ours: its sampler and its noise come from PyTorch's generator, its norms are float32.

What floating point does inside a forward and backward pass is not covered: a record's gradient may differ in its last
bits with the size of the batch that it is computed in.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fedsecure.errors import LocalProtocolError
from fedsecure.method import Cancelled, ClientContext
from fedsecure.models import Parameters
from fedsecure.optimizers import SGD
from fedsecure.plan.privacy import DPSGDSettings
from fedsecure.privacy.clipping import clipped_sums
from fedsecure.privacy.context import NoiseSource, PrivacyContext
from fedsecure.privacy.layers import check_leaves, check_losses, check_module
from fedsecure.rootlogger import root_logger_kept
from fedsecure.warned import own_filters

with root_logger_kept():
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed

__all__ = ["Group", "dp_sgd"]


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters, by name, that are moved with the same rate, momentum (from zero) and weight decay."""

    names: tuple[str, ...]
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0


def dp_sgd(
    module: nn.Module,
    groups: Sequence[Group],
    columns: Sequence[torch.Tensor],
    ctx: ClientContext,
    after_noise: Callable[[], None] | None = None,
) -> Parameters:
    """The parameters of ``module``, by name, after the plan's steps on ``columns``.

    ``module``: maps ``columns``, each (b, …), to the losses of these b records (b,); it is used up. ``groups``: hold
    each of its parameters once. ``columns``: all records, (n', …) each, on the module's device; n' is at most the
    ``records`` of ``ctx.privacy``, of which q follows. ``after_noise`` may change the ``.grad`` of parameters, which
    are noisy means by then, before each step. Reports ``noisy_gradient``, the mean norm of the noisy gradients.

    Raises ``ConfigError`` for a module whose records are not kept apart or a parameter that no group moves, and
    ``Cancelled``.
    """
    privacy = ctx.privacy
    if privacy is None or not isinstance(privacy.settings, DPSGDSettings) or privacy.records < 1:
        raise LocalProtocolError("DP-SGD was asked for without its settings, or without any record")
    settings, norms = privacy.settings, list[float]()
    steps = _Steps(module, groups, privacy, settings, ctx)
    q = min(1.0, settings.batch / privacy.records)
    for done in range(1, settings.steps + 1):
        index = torch.from_numpy(privacy.noise.sample(len(columns[0]), q)).to(columns[0].device)
        steps.take(columns, index, after_noise)
        norms.append(steps.noisy_norm)
        ctx.progress(done, settings.steps)
    ctx.report("noisy_gradient", float(np.mean(norms)))
    return {name: p.detach() for name, p in module.named_parameters()}


class _Steps:
    """The steps of one round."""

    def __init__(
        self,
        module: nn.Module,
        groups: Sequence[Group],
        privacy: PrivacyContext,
        settings: DPSGDSettings,
        ctx: ClientContext,
    ) -> None:
        check_module(module, [name for group in groups for name in group.names])
        _register_layers(module)
        self._ctx, self._physical = ctx, settings.physical_batch
        self._wrapped = GradSampleModule(module.train(), loss_reduction="sum", strict=False)
        moved = _Groups(dict(module.named_parameters()), groups)
        self._optimizer = _PrivateSGD(moved, settings, privacy.noise, expected=min(settings.batch, privacy.records))
        self._parameters = list(module.parameters())
        self.noisy_norm = 0.0

    def take(self, columns: Sequence[torch.Tensor], index: torch.Tensor, after: Callable[[], None] | None) -> None:
        """One step on the records of ``index`` (b,), at most ``physical_batch`` of them at a time."""
        optimizer = self._optimizer
        optimizer.step_hook = lambda _: self._see(after)
        starts = range(0, max(1, len(index)), self._physical)
        for start in starts:
            if self._ctx.cancelled():
                raise Cancelled("training was asked to stop")
            optimizer.zero_grad(set_to_none=True)
            self._differentiate([column[index[start : start + self._physical]] for column in columns])
            optimizer.signal_skip_step(do_skip=start != starts[-1])
            optimizer.step()

    def _differentiate(self, batch: Sequence[torch.Tensor]) -> None:
        """Leave the gradient of each record, (b, …), in ``grad_sample`` of every parameter."""
        count = len(batch[0])
        if count == 0:
            for p in self._parameters:
                p.grad_sample = p.new_zeros((0, *p.shape))  # type: ignore[attr-defined]
            return
        losses = self._wrapped(*batch)
        check_losses(losses, count)
        check_leaves(losses, self._parameters)
        with own_filters():
            # The first layer's input needs no gradient: Opacus' hooks are right there all the same.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            losses.sum().backward()

    def _see(self, after: Callable[[], None] | None) -> None:
        """The noisy mean is in ``.grad``: note its norm, then let ``after`` change it."""
        grads = [p.grad for p in self._parameters if p.grad is not None]
        self.noisy_norm = float(torch.stack([g.norm() for g in grads]).norm())
        if after is not None:
            after()


def _register_layers(module: nn.Module) -> None:
    """Tell Opacus of layers that have ``record_gradients``: it would find them by ``torch.func``, which takes longer
    and imports PyTorch's compiler."""
    for layer in module.modules():
        if hasattr(layer, "record_gradients"):
            GradSampleModule.GRAD_SAMPLERS[type(layer)] = _record_gradients


def _record_gradients(layer: Any, inputs: list[torch.Tensor], slopes: torch.Tensor) -> dict[nn.Parameter, torch.Tensor]:
    found: dict[nn.Parameter, torch.Tensor] = layer.record_gradients(inputs[0], slopes)
    return found


class _Groups:
    """SGD over several groups, as Opacus expects an optimiser."""

    def __init__(self, parameters: Parameters, groups: Sequence[Group]) -> None:
        self.param_groups = [{"params": [parameters[name] for name in group.names]} for group in groups]
        self._optimizers = [
            SGD(held["params"], lr=group.lr, momentum=group.momentum, weight_decay=group.weight_decay)
            for held, group in zip(self.param_groups, groups, strict=True)
        ]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients; they are never kept as zeros."""
        for optimizer in self._optimizers:
            optimizer.zero_grad()

    def step(self) -> None:
        """One step of each."""
        for optimizer in self._optimizers:
            optimizer.step()


class _PrivateSGD(DPOptimizer):  # type: ignore[misc]
    """Opacus' optimiser with our clip (float64, at most ``clip``) and noise. ``expected``: what the sum is divided
    by."""

    def __init__(self, moved: _Groups, settings: DPSGDSettings, noise: NoiseSource, *, expected: int) -> None:
        super().__init__(
            moved, noise_multiplier=settings.sigma, max_grad_norm=settings.clip, expected_batch_size=expected
        )
        self._noise = noise

    def clip_and_accumulate(self) -> None:
        """Add the clipped gradients of this part of the batch to ``summed_grad``, float64."""
        for p in self.params:
            _check_processed_flag(p.grad_sample)
        sums = clipped_sums([self._get_flat_grad_sample(p) for p in self.params], self.max_grad_norm)
        for p, added in zip(self.params, sums, strict=True):
            p.summed_grad = added if p.summed_grad is None else p.summed_grad + added
            _mark_as_processed(p.grad_sample)

    def add_noise(self) -> None:
        """Put the clipped sums with noise into ``.grad``; the sums without it are not kept."""
        sums = [p.summed_grad for p in self.params]
        _check_processed_flag(sums)
        noisy = self._noise.add(sums, sensitivity=self.max_grad_norm, sigma=self.noise_multiplier)
        for p, each in zip(self.params, noisy, strict=True):
            p.grad = each.to(p)
            p.summed_grad = None
