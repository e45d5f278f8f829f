"""FedAF's class statistics: a node's mean logits and soft labels, and their averages (FedAF page, 2.1 to 2.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from fedsecure.condensation.means import ClassRecords, exact_means
from fedsecure.data.dataset import Dataset
from fedsecure.method import Aggregate
from fedsecure.methods.outline import LOGIT_BOUND, MAX_CLASS_RECORDS
from fedsecure.models import Network, Parameters
from fedsecure.plan.methods import FedAFSettings
from fedsecure.tensors import Tensors

__all__ = ["averages", "node_statistics", "noisy_statistics"]


def node_statistics(
    settings: FedAFSettings,
    network: Network,
    w: Parameters,
    records: ClassRecords,
    data: Dataset,
) -> Tensors:
    """``mean_logits`` (C, C), ``soft_labels`` (C, C) and ``class_weight`` (C,) of one node.

    v_kc is the mean of f_w over all records of class c under the downloaded, unperturbed w (F3), each record's logits
    clipped to ±``logit_clip``; r_kc = softmax(v_kc / tau). A node that holds no class contributes zeros.
    """
    v = torch.zeros(0, len(data.classes))
    if records.held:
        v = exact_means(network, w, records, logit_clip=settings.max_logit).logits  # (H, C)
    return _statistics(settings, len(data.classes), records.held, v, data.counts())


def noisy_statistics(
    settings: FedAFSettings,
    num_classes: int,
    held: Sequence[int],
    logits: torch.Tensor,
    counts: npt.NDArray[np.int64],
) -> Tensors:
    """The same from noisy mean ``logits`` (H, C) of the ``held`` classes and noisy ``counts`` (C,).

    Noise may take a mean out of the range that the schema promises, so it is clipped to it afterwards.
    """
    bound = settings.max_logit or LOGIT_BOUND
    return _statistics(settings, num_classes, held, logits.clamp(-bound, bound), counts.clip(max=MAX_CLASS_RECORDS))


def _statistics(
    settings: FedAFSettings,
    num_classes: int,
    held: Sequence[int],
    logits: torch.Tensor,
    counts: npt.NDArray[np.int64],
) -> Tensors:
    mean = torch.zeros(num_classes, num_classes)
    soft = torch.zeros(num_classes, num_classes)
    weight = np.zeros(num_classes, dtype=np.int64)
    rows, v = list(held), logits.cpu()  # (H, C)
    weight[rows] = counts[rows] if settings.averaging == "holders_weighted" else 1
    factor = torch.tensor(weight[rows], dtype=torch.float32)[:, None]  # (H, 1)
    mean[rows] = v * factor
    soft[rows] = F.softmax(v / settings.tau, dim=1).clamp_max(1.0) * factor
    return Tensors({"mean_logits": mean.numpy(), "soft_labels": soft.numpy(), "class_weight": weight})


def averages(settings: FedAFSettings, aggregate: Aggregate) -> Tensors:
    """``logits.mean`` V (C, C), ``logits.mask`` (C,) and ``soft.labels`` R (C, C) from the sums over nodes.

    ``holders``: unweighted mean over the nodes that hold the class; ``holders_weighted``: weighted by records;
    ``all``: divided by the number of contributors, non-holders counting as zeros (F5).
    """
    weight = aggregate.summed["class_weight"].astype(np.float64)  # (C,)
    mask = weight > 0.5  # weights are whole numbers
    divisor = np.full_like(weight, len(aggregate.contributors)) if settings.averaging == "all" else weight
    divisor = np.where(mask, divisor, 1.0)[:, None]  # (C, 1)
    rows = {}
    for name, summed in (("logits.mean", "mean_logits"), ("soft.labels", "soft_labels")):
        mean = np.where(mask[:, None], aggregate.summed[summed].astype(np.float64) / divisor, 0.0)  # (C, C)
        rows[name] = mean.astype(np.float32)
    return Tensors({**rows, "logits.mask": mask})
