"""How well a federation does as a system, on test records whose node is known (FedSPM page, 2.10).

*System accuracy*: pooled test records, each answered by the node that it is routed to, or by a vote of all nodes where
a method does not route. *Average accuracy*: each node's own model on its own test records, weighted by rho_i.
*Routing accuracy*: share of the test records that are routed to the node they came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedsecure.evaluation import evaluate, predict
from fedsecure.method import Method, RoutedMethod
from fedsecure.tensors import Array, Tensors

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.plan import Plan

__all__ = ["Tests", "majority_vote", "measure", "routed_metrics", "voted_metrics"]

#: A node's held-out records by node id.
Tests = Mapping[str, "Dataset"]


def majority_vote(votes: Array) -> Array:
    """The commonest label of each column of ``votes``, int64 (m, n); of labels as common, the smallest. Shape (n,)."""
    labels = int(votes.max(initial=0)) + 1
    counts = np.zeros((labels, votes.shape[1]), dtype=np.int64)
    for row in votes:
        counts[row, np.arange(votes.shape[1])] += 1
    return np.asarray(counts.argmax(axis=0), dtype=np.int64)


def measure(
    plan: Plan,
    method: Method,
    server: Tensors,
    local: Mapping[str, Tensors],
    test: Dataset,
    tests: Tests,
    sizes: Mapping[str, int],
    *,
    device: str = "cpu",
) -> dict[str, float]:
    """The metrics of a round. ``accuracy`` is the system's for a method that routes, else the one model's on ``test``.

    ``tests``: each node's own held-out records; without them a routed method has no metrics, and another method only
    those of its model. ``sizes``: training records of each node.
    """
    if isinstance(method, RoutedMethod):
        return routed_metrics(method, server, local, tests, sizes, device=device) if tests else {}
    found = evaluate(plan, method.model(server), test)
    return found | (voted_metrics(plan, method.model(server), tests, sizes) if tests else {})


def routed_metrics(
    method: RoutedMethod,
    server: Tensors,
    local: Mapping[str, Tensors],
    tests: Tests,
    sizes: Mapping[str, int],
    *,
    device: str = "cpu",
) -> dict[str, float]:
    """``system_accuracy``, ``average_accuracy``, ``routing_accuracy``, and ``accuracy``, which is the system's."""
    nodes = [n for n in method.nodes if n in tests and len(tests[n])]
    x = np.concatenate([tests[n].x for n in nodes])
    y = np.concatenate([tests[n].y for n in nodes])
    own = np.concatenate([np.full(len(tests[n]), method.nodes.index(n)) for n in nodes])
    routed = method.route(method.routing(server), x, device=device).argmax(axis=1)
    serving = method.serving(server)
    by_own, by_routed = np.full(len(y), -1), np.full(len(y), -1)
    for index, node in enumerate(method.nodes):
        asked = np.flatnonzero((own == index) | (routed == index))
        if len(asked) and node in local:
            answer = method.predict(node, serving, local[node], x[asked], device=device)
            labels = answer.probabilities.argmax(axis=1)
            mine, sent = own[asked] == index, routed[asked] == index
            by_own[asked[mine]], by_routed[asked[sent]] = labels[mine], labels[sent]
    system = float((by_routed == y).mean())
    average = _average({n: float((by_own == y)[own == method.nodes.index(n)].mean()) for n in nodes}, sizes)
    return {
        "accuracy": system,
        "system_accuracy": system,
        "average_accuracy": average,
        "routing_accuracy": float((routed == own).mean()),
    }


def voted_metrics(plan: Plan, model: Tensors, tests: Tests, sizes: Mapping[str, int]) -> dict[str, float]:
    """``system_accuracy`` by a vote of the nodes, who all hold the one ``model``, and ``average_accuracy``."""
    nodes = [n for n in tests if len(tests[n])]
    labels = {n: predict(plan, model, tests[n]).argmax(dim=1).numpy() for n in nodes}
    pooled, y = np.concatenate([labels[n] for n in nodes]), np.concatenate([tests[n].y for n in nodes])
    voted = majority_vote(np.broadcast_to(pooled, (len(nodes), len(pooled))))
    average = _average({n: float((labels[n] == tests[n].y).mean()) for n in nodes}, sizes)
    return {"system_accuracy": float((voted == y).mean()), "average_accuracy": average}


def _average(accuracies: Mapping[str, float], sizes: Mapping[str, int]) -> float:
    """sum_i rho_i acc_i over the nodes that have test records."""
    total = sum(sizes[node] for node in accuracies)
    return sum(sizes[node] * accuracy for node, accuracy in accuracies.items()) / total
