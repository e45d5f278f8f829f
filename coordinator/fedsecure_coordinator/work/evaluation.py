"""The coordinator's own test of each round's model, on public records."""

from __future__ import annotations

from collections.abc import Mapping

from fedsecure.data.dataset import Dataset
from fedsecure.data.settings import AnySource
from fedsecure.plan import Plan
from fedsecure.plan.methods import RoutedSettings
from fedsecure.tensors import Tensors
from fedsecure_coordinator.work.worker import Evaluate

__all__ = ["evaluator"]


def evaluator(source: AnySource | None) -> Evaluate | None:
    """Evaluation on the records of ``source``, read once for each task. ``None`` without a source.

    The function raises ``DataError`` for a plan whose task the records do not fit, and measures nothing of a method
    that routes: its heads are the nodes'.
    """
    if source is None:
        return None
    read: dict[str, Dataset] = {}

    def evaluate(plan: Plan, model: Tensors) -> Mapping[str, float]:
        if isinstance(plan.method, RoutedSettings):
            return {}
        from fedsecure.data import load_dataset
        from fedsecure.evaluation import evaluate as measure

        key = plan.task.model_dump_json()
        if key not in read:
            read[key] = load_dataset(source, plan.task)
        return measure(plan, model, read[key])

    return evaluate
