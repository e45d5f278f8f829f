"""Records that stick out under a broadcast model take no part in what is computed from it.

A model can be crafted so that one person's output is far from everybody else's: a class mean then tells whether that
person is in it. To refuse such a model would tell the same, as it would be refused by the nodes that have the person
alone. So the person is left out of this one exchange, and what leaves is the same as if the record were not there. Only
a model under which many stick out is refused: that is nobody's secret. Plans with [privacy] have noise in place of it,
and what takes part in them must not follow from exact records.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsecure.data.dataset import Dataset
from fedsecure.errors import PolicyError
from fedsecure.method import Method
from fedsecure.outliers import spreads
from fedsecure.plan import Plan
from fedsecure.plan.methods import CondensationSettings
from fedsecure.policy import BroadcastRules, Policy
from fedsecure.tensors import Tensors
from fedsecure.text import counted
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.progress import Reporter

__all__ = ["without_sticking_out"]

Flags = npt.NDArray[np.bool_]
#: So many may stick out of any number of records.
FEW = 5


def without_sticking_out(
    plan: Plan,
    method: Method,
    key: ExchangeKey,
    broadcast: Tensors,
    data: Dataset,
    policy: Policy,
    reporter: Reporter,
    device: str,
) -> Dataset:
    """``data`` without the records that stick out (``broadcast.max_spread``); ``data`` itself where none does. Raises
    ``PolicyError`` (``broadcast.max_left_out``) where too many do."""
    out = _sticking_out(plan, method, broadcast, data, policy.broadcast, device)
    if not out.any():
        return data
    count, most = int(out.sum()), policy.broadcast.max_left_out
    if count > max(FEW, most * len(data)):
        raise PolicyError(
            f"broadcast.max_left_out: {count} of {counted(len(data), 'record')} stick out under the broadcast model "
            f"(allowed: a share of {most:g})",
            hint="the model has diverged, or it is made to single records out; nothing was computed. Ask the "
            "coordinator's operator where it comes from",
        )
    reporter.say(
        "left-out",
        f"{key}: WARNING: of {len(data)} records {count} stick out under the broadcast model, as few do under any "
        "honest one, and take no part in this exchange; if it happens again, ask where the model comes from",
        plan=key.plan,
        round=key.round + 1,
        left_out=count,
    )
    return data.subset(np.flatnonzero(~out))


def _sticking_out(
    plan: Plan, method: Method, broadcast: Tensors, data: Dataset, rules: BroadcastRules, device: str
) -> Flags:
    """(n,): which records do."""
    from fedsecure.methods.inspection import inspect

    outputs = list(inspect(method, broadcast, data, device=device))
    if not outputs:
        return np.zeros(len(data), dtype=np.bool_)
    found = np.concatenate(outputs)  # (n, k)
    wrong = ~np.isfinite(found).all(axis=1)
    found = np.where(wrong[:, None], 0.0, found).astype(np.float32)
    is_by_class = isinstance(plan.method, CondensationSettings)  # else what leaves is a sum over all records
    far = spreads(found, data.y if is_by_class else np.zeros_like(data.y)) > rules.max_spread
    return np.asarray(wrong | far)
