"""Which model to ask: chosen by its run's digest, its plan and routing parameters checked before anything is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fedsecure.analyst.client import AnalystClient
from fedsecure.errors import ConfigError, DataError, RemoteProtocolError
from fedsecure.method import Method, RoutedMethod
from fedsecure.plan import Plan
from fedsecure.schema import Contribution
from fedsecure.tensors import MAX_HEADER_BYTES, Tensors
from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = ["MIN_PREFIX", "BuildMethod", "Model", "Router", "choose", "load_router", "read_model"]

#: A shorter part of a digest is too easily another's (hexadecimal digits).
MIN_PREFIX: Final = 8

BuildMethod = Callable[[Plan], Method]


@dataclass(frozen=True, slots=True)
class Model:
    """A run that answers queries: its plan, checked against ``run``, its digest; ``nodes``, sorted."""

    run: str
    plan: Plan
    served: pb.ServedModel = field(repr=False)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that the plan names: those that can be asked."""
        return tuple(sorted(self.plan.cohort.nodes))


@dataclass(frozen=True, slots=True)
class Router:
    """What it takes to route here: the method, and routing parameters that fit its schema."""

    method: RoutedMethod
    parameters: Tensors


def choose(models: Sequence[pb.ServedModel], prefix: str) -> pb.ServedModel:
    """The one model whose run's digest begins with ``prefix``.

    Only the whole digest fixes the plan, and with it the nodes: eight digits can be met on purpose by a coordinator
    that makes up a plan.

    Raises ``ConfigError``: no hexadecimal digits, fewer than ``MIN_PREFIX``, unknown, or more than one run's.
    """
    wanted = prefix.lower()
    if not MIN_PREFIX <= len(wanted) <= 64 or set(wanted) - set("0123456789abcdef"):
        raise ConfigError(
            f"run {prefix[:80]!r} is not a digest", hint=f"give its first {MIN_PREFIX} to 64 hexadecimal digits"
        )
    found = [model for model in models if model.plan_digest.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    digests = [model.plan_digest[:12] for model in (found or models)]
    which = ", ".join(digests[:8]) + (" …" if len(digests) > 8 else "")
    if found:
        raise ConfigError(f"run {prefix}: {len(found)} runs begin with it: {which}", hint="give more digits")
    raise ConfigError(
        f"run {prefix}: no model of this digest answers queries", hint=f"these do: {which or 'none at this moment'}"
    )


def read_model(served: pb.ServedModel) -> Model:
    """The model, once its plan's bytes were found to be those of its digest. Raises ``RemoteProtocolError``."""
    plan = Plan.from_wire(served.canonical, served.plan_digest)
    if not plan.cohort.nodes:
        raise RemoteProtocolError(f"run {served.plan_digest[:12]}: its plan names no nodes, so nobody can be asked")
    return Model(served.plan_digest, plan, served)


def load_router(client: AnalystClient, model: Model, build_method: BuildMethod) -> Router:
    """Download the routing parameters of ``model``; check digest, names, shapes and values.

    Raises ``RemoteProtocolError`` when they are not what they should be, ``WireError`` when they cannot be fetched.
    """
    where = f"routing parameters of run {model.run[:12]}"
    method = build_method(model.plan)
    if not isinstance(method, RoutedMethod):
        raise RemoteProtocolError(f"run {model.run[:12]}: method {model.plan.method.name} does not route queries")
    schema, size = method.routing_schema(), model.served.routing_bytes
    if size > schema.max_nbytes + MAX_HEADER_BYTES + 8:
        raise RemoteProtocolError(f"{where}: {size} bytes are announced where its plan allows {schema.max_nbytes}")
    data = client.routing(model.run, size)
    if hashlib.sha256(data).hexdigest() != model.served.routing_digest:
        raise RemoteProtocolError(f"{where}: the bytes have another digest", hint="the coordinator is at fault")
    try:
        parameters = Tensors.from_bytes(data)
        schema.check(Contribution(released=parameters))
    except DataError as error:
        raise RemoteProtocolError(f"{where}: {error}", hint="the coordinator is at fault") from None
    return Router(method, parameters)
