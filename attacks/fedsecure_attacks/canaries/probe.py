"""Canaries inside DP-SGD: put among the gradients of one node's records before the clip, and written down.

``inserted`` stands in for two functions of ``fedsecure.privacy.dpsgd`` while it lasts, and calls them: a seam for
gradients that come from no record would be one in every node. All else is as it is deployed: sampling, clip, noise,
steps, masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedsecure.method import Method
from fedsecure.methods.joint import outer_name
from fedsecure.methods.routed import RoutedBase
from fedsecure.privacy.context import NoiseSource, PrivacyContext
from fedsecure_attacks.canaries.directions import Canaries
from fedsecure_attacks.moves import Moved
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["Call", "Place", "Probe", "inserted"]

#: A canary's gradient is this many times the clip norm: the clip decides how much of it counts.
LENGTH = 1e3


@dataclass(frozen=True, slots=True)
class Place:
    """One parameter of the loss, in the order of the clip. ``sent``: its name in the contribution, ``None`` for one
    that never leaves; ``at``: where it begins in a canary. ``group``: what moves it."""

    sent: str | None
    shape: tuple[int, ...]
    group: int
    at: int

    @property
    def size(self) -> int:
        """Its values."""
        return math.prod(self.shape)


@dataclass
class Call:
    """One node's DP-SGD in one round. ``known``: for each step the sum before noise along each canary, by group (G, m).
    ``joined``: for each step, the canaries in its batch (m,), of the target alone. ``amplitude``: norm of one canary
    behind the clip."""

    node: str
    round: int
    places: tuple[Place, ...]
    moved: tuple[Moved, ...]
    expected: int
    known: list[Floats] = field(default_factory=list)
    joined: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    amplitude: float = 0.0


class Probe:
    """Puts canaries into the steps of node ``target`` and writes down what everybody but one canary knows.

    ``most``: canaries, drawn when the first step tells how many values are sent. ``calls`` in order."""

    def __init__(self, method: Method, target: str, most: int, generator: np.random.Generator) -> None:
        self.target = target
        self._method, self._most, self._generator = method, most, generator
        self._where = ("", 0)
        self._begun = False
        self.canaries: Canaries | None = None
        self.calls: list[Call] = []

    def turn(self, node: str, round_: int, privacy: PrivacyContext) -> PrivacyContext:
        """Node ``node`` is computing now; what it is handed instead of ``privacy`` tells where a step begins."""
        self._where = (node, round_)
        return replace(privacy, noise=_Telling(privacy.noise, self._step_begins))

    def begins(self, module: nn.Module, groups: Sequence[Any], expected: int) -> None:
        """DP-SGD begins on the parameters of ``module``."""
        shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
        places, at = [], 0
        for index, group in enumerate(groups):
            for name in group.names:
                place = Place(self._sent(name), shapes[name], index, at)
                places.append(place)
                at += place.size if place.sent is not None else 0
        moved = tuple(Moved(g.lr, g.momentum, g.weight_decay) for g in groups)
        if self.canaries is None:
            self.canaries = Canaries.draw(at, self._most, self._generator)
        self.calls.append(Call(*self._where, tuple(places), moved, expected))

    def clipped(
        self, real: Callable[..., list[torch.Tensor]], samples: Sequence[torch.Tensor], clip: float
    ) -> list[torch.Tensor]:
        """The clipped sums (by ``real``) of a part of a batch and, in the first of its step, of the canaries."""
        call, canaries = self.calls[-1], self.canaries
        assert canaries is not None
        if self._begun and call.node == self.target:
            rows = canaries.rows[call.joined[-1]]
            samples = [torch.cat((s, _part(rows, p, s, clip))) for s, p in zip(samples, call.places, strict=True)]
            if not call.amplitude:
                alone = [_part(canaries.rows[:1], p, s, clip) for s, p in zip(samples, call.places, strict=True)]
                call.amplitude = math.sqrt(sum(float(each.square().sum()) for each in real(alone, clip)))
        self._begun = False
        sums = real(samples, clip)
        for place, each in zip(call.places, sums, strict=True):
            if place.sent is not None:
                flat = each.detach().to("cpu", torch.float32).reshape(-1).numpy()
                call.known[-1][place.group] += canaries.rows[:, place.at : place.at + place.size] @ flat
        return sums

    def _step_begins(self, q: float) -> None:
        call, canaries = self.calls[-1], self.canaries
        assert canaries is not None
        self._begun = True
        call.known.append(np.zeros((len(call.moved), len(canaries))))
        if call.node == self.target:
            joined = np.zeros(len(canaries), np.bool_)
            joined[self._sample(len(canaries), q)] = True
            call.joined.append(joined & canaries.inside)

    def _sample(self, count: int, q: float) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self._generator.random(count) < q)

    def _sent(self, name: str) -> str | None:
        if isinstance(self._method, RoutedBase):
            outer = outer_name(name)
            return f"shared.{outer}" if outer in {spec.name for spec in self._method.shared_specs} else None
        return f"model.{name.removeprefix('network.')}"


def _part(rows: npt.NDArray[np.float32], place: Place, like: torch.Tensor, clip: float) -> torch.Tensor:
    """The part of ``rows`` that parameter ``place`` has, as gradients (k, *shape) of ``LENGTH`` clips."""
    if place.sent is None:
        return like.new_zeros((len(rows), *place.shape))
    part = torch.from_numpy(np.ascontiguousarray(rows[:, place.at : place.at + place.size]))
    return (part * (LENGTH * clip)).reshape(len(rows), *place.shape).to(like)


class _Telling:
    """A noise source that tells when a batch is drawn, and is ``real`` in all else."""

    def __init__(self, real: NoiseSource, begins: Callable[[float], None]) -> None:
        self._real, self._begins = real, begins

    def add(self, sums: Sequence[torch.Tensor], *, sensitivity: float, sigma: float) -> list[torch.Tensor]:
        return self._real.add(sums, sensitivity=sensitivity, sigma=sigma)

    def sample(self, records: int, q: float) -> npt.NDArray[np.int64]:
        self._begins(q)
        return self._real.sample(records, q)

    def count(self, counts: npt.NDArray[np.int64], *, sigma: float) -> npt.NDArray[np.int64]:
        return self._real.count(counts, sigma=sigma)


@contextmanager
def inserted(probe: Probe) -> Iterator[None]:
    """``probe`` sees every DP-SGD of this process while the block lasts."""
    from fedsecure.privacy import dpsgd  # imports Opacus, which takes seconds

    before = {name: getattr(dpsgd, name) for name in ("dp_sgd", "clipped_sums")}

    def watched(module: nn.Module, groups: Sequence[Any], columns: Any, ctx: Any, after_noise: Any = None) -> Any:
        probe.begins(module, groups, min(ctx.privacy.settings.batch, ctx.privacy.records))
        return before["dp_sgd"](module, groups, columns, ctx, after_noise)

    def clipped(samples: Sequence[torch.Tensor], clip: float) -> list[torch.Tensor]:
        return probe.clipped(before["clipped_sums"], samples, clip)

    try:
        for name, instead in (("dp_sgd", watched), ("clipped_sums", clipped)):
            setattr(dpsgd, name, instead)
        yield
    finally:
        for name, own in before.items():
            setattr(dpsgd, name, own)
