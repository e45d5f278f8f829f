"""FedDM, the baseline that matches distributions around the downloaded model (FedAF page, section 2.8)."""

from __future__ import annotations

import torch

from fedsecure.condensation.loop import Matcher, match, record_matcher
from fedsecure.condensation.matching import feddm_loss
from fedsecure.condensation.means import ClassRecords, class_records
from fedsecure.condensation.resampling import perturbed
from fedsecure.data.dataset import Dataset
from fedsecure.method import Aggregate, ClientContext, ServerContext
from fedsecure.methods.base import ModelMethod
from fedsecure.methods.condensed import gather, pack, starting_images
from fedsecure.methods.held import class_counts, held_classes
from fedsecure.methods.noisy import Reading, noisy_round
from fedsecure.methods.server_training import train_on_condensed
from fedsecure.models import Parameters
from fedsecure.plan import Plan
from fedsecure.plan.methods import FedDMSettings
from fedsecure.randomness import torch_generator
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors

__all__ = ["FedDM"]


class FedDM(ModelMethod):
    """Released: condensed ``images`` and ``labels``; nothing is summed. The coordinator trains on their union."""

    def __init__(self, plan: Plan, settings: FedDMSettings) -> None:
        super().__init__(plan)
        self.settings = settings

    def client_update(
        self, exchange: str, broadcast: Tensors, local: Tensors, data: Dataset, ctx: ClientContext
    ) -> tuple[Tensors, Contribution]:
        """Condense each held class. Reports ``dm_start``, ``dm_end``, ``logits_start``, ``logits_end``.

        A node that holds no class releases zero images, which is legal.
        """
        self._check_client(exchange, broadcast, data, ctx)
        held = held_classes(class_counts(data, ctx), self.settings.min_count)
        if not held:
            return Tensors(), Contribution(released=pack(torch.empty(0, self.settings.ipc, *self._shape), held))
        w = self._parameters(broadcast, ctx.device)
        records = class_records(self.plan.task, data, held, ctx.device)
        kept = local.under("condensed") if self.settings.warm_start else Tensors()
        images = starting_images(self.settings, records, kept, ctx)
        matcher, noisy = self._matcher(exchange, broadcast, w, records, local, ctx)
        result = match(self.settings, matcher, images, feddm_loss(self.settings), ctx)
        for when, terms in (("start", result.first), ("end", result.last)):
            for name, value in terms.items():
                ctx.report(f"{name}_{when}", value)
        released = pack(result.images, held)
        kept = released.prefixed("condensed") if self.settings.warm_start else Tensors()
        return Tensors({**noisy, **kept}), Contribution(released=released)

    def _matcher(
        self,
        exchange: str,
        broadcast: Tensors,
        w: Parameters,
        records: ClassRecords,
        local: Tensors,
        ctx: ClientContext,
    ) -> tuple[Matcher, Tensors]:
        """What to match, and what to keep of it (under differential privacy)."""

        def draw(index: int) -> Parameters:
            return perturbed(w, self.settings.rho, torch_generator(ctx.seed, "network", ctx.round, index))

        if ctx.privacy is None:
            return record_matcher(self.settings, self.network, records, draw, ctx), Tensors()
        model = broadcast.under("model")
        reading = Reading(self.plan, self.settings, exchange, self.network, w, model, draw, records, ctx.privacy, ctx)
        noisy = noisy_round(reading, local)
        matcher = noisy.matcher()
        assert matcher is not None  # a round has one exchange, so none was missed
        return matcher, noisy.kept()

    def server_update(self, exchange: str, server: Tensors, aggregate: Aggregate, ctx: ServerContext) -> Tensors:
        """Train the model on from where it was, on the union of condensed data."""
        self._check_exchange(exchange)
        images, labels = gather(aggregate, self.settings, ctx.device)
        w = self._parameters(server, ctx.device)
        w = train_on_condensed(self.network, w, images, labels, self.settings.server, ctx)
        ctx.report("condensed", float(len(labels)))
        return server.with_(self._model_tensors(w))

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.plan.task.feature_shape
