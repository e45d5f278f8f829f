"""What a trained mixture does with a query: route it by the shared parameters, answer it by a node's own heads."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch

from fedsecure.errors import DataError, LocalProtocolError
from fedsecure.method import Prediction
from fedsecure.mixture.experts import head_log_probabilities, mixture_prediction
from fedsecure.mixture.gate import component_posterior, joint_logits, routing_scores
from fedsecure.models import Parameters, standardise, to_parameters
from fedsecure.plan import Plan
from fedsecure.plan.methods import RoutedSettings
from fedsecure.tensors import Array, Tensors

__all__ = ["CHUNK", "SMALLEST", "Answering"]

#: Records that go through a network at once where no gradient is needed.
CHUNK = 1024
#: Mixing weights below this count as this before a logarithm is taken (P9).
SMALLEST = 1e-8


class Answering(ABC):
    """Routing (10) and prediction (11) of a ``RoutedMethod``; ``nodes`` are the plan's cohort, sorted."""

    def __init__(self, plan: Plan, settings: RoutedSettings, components: int) -> None:
        self.plan, self.routed, self.components = plan, settings, components
        self.nodes = tuple(sorted(plan.cohort.nodes))
        self.num_classes = len(plan.task.classes)
        self.explicit = settings.parametrisation == "explicit"

    @abstractmethod
    def predict_features(self, shared: Parameters, x: torch.Tensor) -> torch.Tensor:
        """g_theta of standardised records: (n, E, d), E = 1 or C."""

    @abstractmethod
    def route_features(self, shared: Parameters, x: torch.Tensor) -> torch.Tensor:
        """h_nu of standardised records: (n, E, d'), E = 1 or C."""

    def bias(self, shared: Parameters, own: torch.Tensor | None = None, index: int = 0) -> torch.Tensor:
        """The bias of joint logits (m, C): b, or gamma + log(rho pi) with this node's row of shares ``own``."""
        if not self.explicit:
            return shared["bias"]
        mixing = shared["mixing"]
        if own is not None:
            mixing = torch.cat((mixing[:index], own[None], mixing[index + 1 :]))
        return shared["bias"] + mixing.clamp(min=SMALLEST).log()

    def index(self, node: str) -> int:
        """The row of a node. Raises ``LocalProtocolError`` when the plan does not name it."""
        if node not in self.nodes:
            raise LocalProtocolError(
                f"node {node}: the plan's cohort does not name it, so it has no row in the mixture",
                hint="name every node in the plan's cohort.nodes",
            )
        return self.nodes.index(node)

    @torch.no_grad()
    def route(self, routing: Tensors, x: Array, *, device: str = "cpu") -> Array:
        """Scores (n, m), float64: see ``RoutedMethod.route``."""
        shared = to_parameters(routing, device)
        log_rho = shared["rho"].clamp(min=SMALLEST).log() if self.routed.route_prior == "density" else None
        found = []
        for part in self._records(x, device):
            logits = joint_logits(self.route_features(shared, part), shared["xi"], self.bias(shared))
            found.append(routing_scores(logits, log_rho).double().cpu().numpy())
        scores = np.concatenate(found) if found else np.empty((0, len(self.nodes)))
        _require_finite(scores, "routing scores")
        return scores

    @torch.no_grad()
    def predict(self, node: str, serving: Tensors, local: Tensors, x: Array, *, device: str = "cpu") -> Prediction:
        """One node's answer: see ``RoutedMethod.predict``."""
        if "head.alpha" not in local:
            raise DataError(f"node {node}: has no heads for plan {self.plan.name}: it never trained in this run")
        shared, heads = to_parameters(serving, device), to_parameters(local.under("head"), device)
        index, likeliest = self.index(node), getattr(self.plan.method, "prediction", "") == "likeliest"
        probabilities, components = [], []
        for part in self._records(x, device):
            logits = joint_logits(self.route_features(shared, part), shared["xi"], self.bias(shared))
            omega = component_posterior(logits, index)
            log_p = head_log_probabilities(self.predict_features(shared, part), heads["alpha"], heads["beta"])
            probabilities.append(mixture_prediction(omega, log_p, likeliest=likeliest).cpu().numpy())
            components.append(omega.cpu().numpy())
        if not probabilities:
            return Prediction(np.empty((0, self.num_classes), np.float32), np.empty((0, self.components), np.float32))
        given = Prediction(np.concatenate(probabilities), np.concatenate(components))
        _require_finite(given.probabilities, "probabilities")
        _require_finite(given.components, "probabilities")
        return given

    def _records(self, x: Array, device: str) -> list[torch.Tensor]:
        """Checked, standardised records in chunks."""
        due = self.plan.task.feature_shape
        if x.dtype != np.float32 or x.ndim != 1 + len(due) or x.shape[1:] != due:
            raise DataError(
                f"tensor x: {x.dtype} of shape {list(x.shape)} where float32 records of shape {list(due)} are due"
            )
        if not np.isfinite(x).all():
            raise DataError(f"tensor x: {int(x.size - np.isfinite(x).sum())} of {x.size} values are not finite")
        parts = (x[at : at + CHUNK] for at in range(0, len(x), CHUNK))
        return [standardise(self.plan.task, torch.tensor(part, device=device)) for part in parts]


def _require_finite(rows: Array, what: str) -> None:
    """``rows`` (n, m) are what came of records. Raises ``DataError`` naming the first that values within float32, but
    far beyond those of training, gave numbers that are not finite."""
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise DataError(
            f"tensor x: record {int(np.argmin(finite))}: its {what} are not finite",
            hint="does the record hold a value far beyond those that the model was trained on?",
        )
