"""FedAF: nodes release condensed data, and only class statistics are averaged (FedAF page, section 2.2)."""

from __future__ import annotations

import numpy as np
import torch

from fedsecure.condensation.loop import Draw, Matcher, match, record_matcher
from fedsecure.condensation.matching import Loss, fedaf_loss
from fedsecure.condensation.means import ClassRecords, class_records
from fedsecure.condensation.resampling import interpolated
from fedsecure.data.dataset import Dataset
from fedsecure.method import Aggregate, ClientContext, ServerContext
from fedsecure.methods.base import ModelMethod
from fedsecure.methods.condensed import gather, pack, starting_images
from fedsecure.methods.held import class_counts, held_classes
from fedsecure.methods.lgkm import SoftLabels
from fedsecure.methods.noisy import Reading, noisy_round
from fedsecure.methods.outline import CONDENSATION, LOGIT_BOUND, STATISTICS
from fedsecure.methods.server_training import Matching, train_on_condensed
from fedsecure.methods.statistics import averages, node_statistics, noisy_statistics
from fedsecure.models import Parameters
from fedsecure.plan import Plan
from fedsecure.plan.methods import FedAFSettings
from fedsecure.privacy.context import PrivacyContext
from fedsecure.randomness import derive_seed, torch_generator
from fedsecure.schema import Contribution, Schema, TensorSpec
from fedsecure.tensors import Tensors

__all__ = ["FedAF"]


class FedAF(ModelMethod):
    """Coordinator's state: ``model.…``, ``logits.mean`` V (C, C), ``logits.mask`` (C,), ``soft.labels`` R (C, C).

    ``sync = "two_phase"``: exchange *statistics* sums mean logits and soft labels under the round's model;
    *condensation* broadcasts their averages, and nodes condense against them. ``sync = "stale"``: one exchange *round*
    does both, and the averages that nodes condense against are one round old; in the first round there are none, so
    the SWD term is off. The model travels in both exchanges, so that a node that missed the first can take part in the
    second.
    Kept on the node: ``condensed.…``, last round's images, with ``warm_start`` (F8).
    """

    def __init__(self, plan: Plan, settings: FedAFSettings) -> None:
        super().__init__(plan)
        self.settings = settings

    def broadcast_schema(self, exchange: str) -> Schema:
        """The model and, where nodes condense, the global mean logits and which of them are known."""
        self._check_exchange(exchange)
        if exchange == STATISTICS:
            return Schema(released=self.model_specs)
        bound = self.settings.max_logit or LOGIT_BOUND
        c = self.num_classes
        return Schema(
            released=(
                *self.model_specs,
                TensorSpec(
                    "logits.mean", "float32", (c, c), -bound, bound, "mean logits of each class over its holders"
                ),
                TensorSpec("logits.mask", "bool", (c,), 0, 1, "classes that any node holds"),
            )
        )

    def init_server(self, seed: int) -> Tensors:
        """A fresh model; no mean logits known yet."""
        square = (self.num_classes, self.num_classes)
        nothing = {
            "logits.mean": np.zeros(square, np.float32),
            "logits.mask": np.zeros(self.num_classes, np.bool_),
            "soft.labels": np.zeros(square, np.float32),
        }
        return super().init_server(seed).with_(nothing)

    def broadcast(self, exchange: str, server: Tensors) -> Tensors:
        """What ``broadcast_schema`` names."""
        named = self.broadcast_schema(exchange).released
        return Tensors({spec.name: server[spec.name] for spec in named})

    def client_update(
        self, exchange: str, broadcast: Tensors, local: Tensors, data: Dataset, ctx: ClientContext
    ) -> tuple[Tensors, Contribution]:
        """Statistics, condensed data, or both. Reports ``dm_start``, ``dm_end``, ``swd_start``, ``swd_end`` (weighted).

        A node that holds no class contributes zeros to the sums and releases zero images; both are legal. Under
        differential privacy one that missed the round's statistics has no noisy means to match: it releases last
        round's condensed data again, or none.
        """
        self._check_client(exchange, broadcast, data, ctx)
        settings = self.settings
        held = held_classes(class_counts(data, ctx), settings.min_count)
        records = class_records(self.plan.task, data, held, ctx.device)
        w = self._parameters(broadcast, ctx.device)
        if ctx.privacy is not None and held:
            return self._private(exchange, broadcast, w, records, local, ctx, ctx.privacy)
        summed = Tensors()
        if exchange != CONDENSATION:
            summed = node_statistics(settings, self.network, w, records, data)
        if exchange == STATISTICS:
            return local, Contribution(summed=summed)
        released = self._condense(broadcast, w, records, local, ctx)
        kept = released.prefixed("condensed") if settings.warm_start else Tensors()
        return kept, Contribution(summed, released)

    def server_update(self, exchange: str, server: Tensors, aggregate: Aggregate, ctx: ServerContext) -> Tensors:
        """Fold in statistics, then train the model on (never anew, F13) on the union of condensed data."""
        self._check_exchange(exchange)
        if exchange != CONDENSATION:
            server = server.with_(averages(self.settings, aggregate))
            ctx.report("classes_held", float(server["logits.mask"].sum()))
        if exchange == STATISTICS:
            return server
        images, labels = gather(aggregate, self.settings, ctx.device)
        w = self._parameters(server, ctx.device)
        matching = self._matching(server, ctx.device)
        w = train_on_condensed(self.network, w, images, labels, self.settings.server, ctx, matching)
        ctx.report("condensed", float(len(labels)))
        return server.with_(self._model_tensors(w))

    def _private(
        self,
        exchange: str,
        broadcast: Tensors,
        w: Parameters,
        records: ClassRecords,
        local: Tensors,
        ctx: ClientContext,
        privacy: PrivacyContext,
    ) -> tuple[Tensors, Contribution]:
        """``client_update`` under differential privacy, for a node that holds a class."""
        settings, model, draw = self.settings, broadcast.under("model"), self._draw(w, ctx)
        noisy = noisy_round(
            Reading(self.plan, settings, exchange, self.network, w, model, draw, records, privacy, ctx), local
        )
        kept = local.under("condensed") if settings.warm_start else Tensors()
        summed, released = Tensors(), Tensors()
        if exchange != CONDENSATION:
            counts = np.asarray(privacy.counts, np.int64)
            summed = noisy_statistics(settings, self.num_classes, records.held, noisy.mean_logits(), counts)
        if exchange != STATISTICS:
            matcher = noisy.matcher()
            if matcher is not None:
                kept = released = self._matched(matcher, broadcast, records, kept, ctx)
            else:
                released = kept if len(kept) else self._nothing()
        return Tensors({**noisy.kept(), **kept.prefixed("condensed")}), Contribution(summed, released)

    def _condense(
        self, broadcast: Tensors, w: Parameters, records: ClassRecords, local: Tensors, ctx: ClientContext
    ) -> Tensors:
        if not records.held:
            return self._nothing()
        kept = local.under("condensed") if self.settings.warm_start else Tensors()
        matcher = record_matcher(self.settings, self.network, records, self._draw(w, ctx), ctx)
        return self._matched(matcher, broadcast, records, kept, ctx)

    def _matched(
        self, matcher: Matcher, broadcast: Tensors, records: ClassRecords, kept: Tensors, ctx: ClientContext
    ) -> Tensors:
        """Images, condensed from where ``kept`` ones ended, and their labels."""
        images = starting_images(self.settings, records, kept, ctx)
        result = match(self.settings, matcher, images, self._loss(broadcast, records, ctx), ctx)
        for when, terms in (("start", result.first), ("end", result.last)):
            for name, value in terms.items():
                ctx.report(f"{name}_{when}", value)
        return pack(result.images, records.held)

    def _draw(self, w: Parameters, ctx: ClientContext) -> Draw:
        def draw(index: int) -> Parameters:
            generator = torch_generator(ctx.seed, "network", ctx.round, index)
            return interpolated(self.network, w, self.settings.gamma, generator)

        return draw

    def _nothing(self) -> Tensors:
        return pack(torch.empty(0, self.settings.ipc, *self.plan.task.feature_shape), ())

    def _loss(self, broadcast: Tensors, records: ClassRecords, ctx: ClientContext) -> Loss:
        held = list(records.held)
        v = torch.tensor(broadcast["logits.mean"][held], device=ctx.device)  # (H, C)
        mask = torch.tensor(broadcast["logits.mask"][held], device=ctx.device)  # (H,)
        return fedaf_loss(self.settings, v, mask, derive_seed(ctx.seed, "swd", ctx.round))

    def _matching(self, server: Tensors, device: str) -> Matching | None:
        if self.settings.lambda_glob == 0:
            return None
        r = torch.tensor(server["soft.labels"], device=device)  # (C, C)
        mask = torch.tensor(server["logits.mask"], device=device)  # (C,)
        return Matching(SoftLabels(r, mask, self.settings.tau), self.settings.lambda_glob, self.settings.lgkm)
