"""One M-step of a node: a bounded number of SGD steps over reshuffled batches (FedSPM page, 2.7)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from fedsecure.method import Cancelled, ClientContext
from fedsecure.models import Parameters
from fedsecure.optimizers import SGD
from fedsecure.plan.methods import MStep
from fedsecure.randomness import torch_generator

__all__ = ["MStepRun", "batches", "cosine_rate", "step_rate"]


def cosine_rate(lr: float, round_: int, rounds: int) -> float:
    """Half a cosine from ``lr`` in round 0 down towards 0 after ``rounds``; constant within a round."""
    return lr * (1.0 + math.cos(math.pi * round_ / rounds)) / 2.0


def step_rate(settings: MStep, round_: int, rounds: int) -> float:
    """The rate of an M-step in round ``round_`` (from 0) of ``rounds``, by its schedule."""
    return cosine_rate(settings.lr, round_, rounds) if settings.schedule == "cosine" else settings.lr


def batches(records: int, size: int, steps: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Indices of ``steps`` batches, reshuffled at the start of each pass; the last batch of a pass may be short."""
    done = 0
    while done < steps:
        order = torch.randperm(records, generator=generator)
        for start in range(0, records, size):
            if done == steps:
                return
            done += 1
            yield order[start : start + size]


class MStepRun:
    """``for batch in run.batches(n): run.step(loss)``, then ``run.finish``. Momentum starts at zero."""

    def __init__(
        self,
        settings: MStep,
        start: Parameters,
        what: str,
        rounds: int,
        ctx: ClientContext,
        undecayed: tuple[str, ...] = (),
    ) -> None:
        self._settings, self._what, self._ctx = settings, what, ctx
        self.parameters: Parameters = {name: p.detach().clone().requires_grad_(True) for name, p in start.items()}
        self._optimizers = [
            SGD(
                [p for name, p in self.parameters.items() if (name in undecayed) is bare],
                lr=step_rate(settings, ctx.round, rounds),
                momentum=settings.momentum,
                weight_decay=0.0 if bare else settings.weight_decay,
            )
            for bare in (False, True)
        ]
        self._losses: list[float] = []

    @staticmethod
    def check(ctx: ClientContext) -> None:
        """Raise ``Cancelled`` when the computation was asked to stop."""
        if ctx.cancelled():
            raise Cancelled("training was asked to stop")

    def batches(self, records: int) -> Iterator[torch.Tensor]:
        """Indices of each step's records."""
        settings, ctx = self._settings, self._ctx
        generator = torch_generator(ctx.seed, "batches", self._what, ctx.round)
        for done, index in enumerate(batches(records, settings.batch, settings.steps, generator), start=1):
            self.check(ctx)
            for optimizer in self._optimizers:
                optimizer.zero_grad()
            yield index.to(ctx.device)
            ctx.progress(done, settings.steps)

    def step(self, loss: torch.Tensor) -> None:
        """One step down the gradient of ``loss``."""
        self._losses.append(float(loss.detach()))
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self._optimizers:
            optimizer.step()

    def finish(self, name: str) -> Parameters:
        """The parameters after the last step; reports the mean loss as ``name``."""
        self._ctx.report(name, float(np.mean(self._losses)))
        return {n: p.detach() for n, p in self.parameters.items()}
