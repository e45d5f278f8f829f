"""What every method that trains one global model has in common: the model in state and broadcast, and the checks
of what a method is handed."""

from __future__ import annotations

from collections.abc import Sequence

from fedsecure.data.dataset import Dataset
from fedsecure.errors import DataError, LocalProtocolError
from fedsecure.method import ClientContext
from fedsecure.methods.averaging import check_trained
from fedsecure.methods.outline import model_specs, outline_of
from fedsecure.models import Parameters, blank_network, build_model, state_of, to_parameters, to_tensors
from fedsecure.plan import Plan
from fedsecure.schema import Contribution, Schema
from fedsecure.tensors import Tensors

__all__ = ["ModelMethod", "check_client", "check_exchange"]


def check_exchange(plan: Plan, exchange: str, exchanges: Sequence[str]) -> None:
    """Raise ``LocalProtocolError`` unless the method has this exchange."""
    if exchange not in exchanges:
        raise LocalProtocolError(f"exchange {exchange!r}: {plan.method.name} has only {', '.join(exchanges)}")


def check_client(plan: Plan, schema: Schema, broadcast: Tensors, data: Dataset, ctx: ClientContext) -> None:
    """Refuse a broadcast or data that are not the plan's, and privacy other than the plan asks for."""
    schema.check(Contribution(released=broadcast))
    if (None if ctx.privacy is None else ctx.privacy.settings) != plan.privacy:
        raise LocalProtocolError(
            f"plan {plan.name}: what it says of differential privacy is not what was paid for",
            hint="nothing was computed; please report it",
        )
    task = plan.task
    if data.classes != task.classes:
        raise DataError("data: its classes are not the plan's, or in another order")
    if len(data) and data.x.shape[1:] != task.feature_shape:
        raise DataError(f"data: records of shape {list(data.x.shape[1:])} where {list(task.feature_shape)} is due")


class ModelMethod:
    """Base of FedAvg, FedDM and FedAF. Coordinator state and broadcast hold the model as ``model.<parameter>``."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.num_classes = len(plan.task.classes)
        self.network = blank_network(plan.model, plan.task)
        self.model_specs = model_specs(plan)
        self.outline = outline_of(plan)

    @property
    def exchanges(self) -> tuple[str, ...]:
        """Names of the exchanges of one round, in order."""
        return self.outline.exchanges

    def schema(self, exchange: str) -> Schema:
        """What may leave a node in this exchange."""
        self._check_exchange(exchange)
        return self.outline.schema(exchange)

    def broadcast_schema(self, exchange: str) -> Schema:
        """The model's parameters."""
        self._check_exchange(exchange)
        return Schema(released=self.model_specs)

    def init_server(self, seed: int) -> Tensors:
        """The model, freshly initialised from ``seed``."""
        return state_of(build_model(self.plan.model, self.plan.task, seed)).prefixed("model")

    def broadcast(self, exchange: str, server: Tensors) -> Tensors:
        """The model."""
        self._check_exchange(exchange)
        return server.under("model").prefixed("model")

    def model(self, server: Tensors) -> Tensors:
        """The trained model's parameters, named as the model names them."""
        return server.under("model")

    def _check_exchange(self, exchange: str) -> None:
        check_exchange(self.plan, exchange, self.exchanges)

    def _check_client(self, exchange: str, broadcast: Tensors, data: Dataset, ctx: ClientContext) -> None:
        """Refuse a broadcast or data that are not the plan's, and privacy other than the plan asks for."""
        self._check_exchange(exchange)
        check_client(self.plan, self.broadcast_schema(exchange), broadcast, data, ctx)

    @staticmethod
    def _parameters(tensors: Tensors, device: str) -> Parameters:
        return to_parameters(tensors.under("model"), device)

    def _model_tensors(self, parameters: Parameters) -> Tensors:
        """The trained parameters as ``model.…``. Raises ``DataError`` when they are not finite or out of range."""
        tensors = to_tensors(parameters).prefixed("model")
        check_trained(self.model_specs, tensors)
        return tensors
