"""The runs that answer queries: their plans and routing parameters, and the routing of plain queries."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from fedsecure.errors import DataError, RemoteProtocolError
from fedsecure.method import RoutedMethod
from fedsecure.tensors import Array, Tensors
from fedsecure_coordinator.runs.registry import Registry
from fedsecure_coordinator.runs.run import plan_of
from fedsecure_coordinator.store.journal import Published, RunRow

__all__ = ["Model", "Models"]

#: Methods that are kept ready to route plain queries; beyond, the one unused for longest is forgotten.
MAX_ROUTERS: Final = 4


@dataclass(frozen=True, slots=True)
class Model:
    """A completed run that answers queries. ``nodes``: those that its plan names, sorted."""

    row: RunRow
    published: Published
    nodes: tuple[str, ...]


class Models:
    """What analysts may know of the runs of a registry. Safe to share between threads."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._building = threading.Lock()
        self._routers: dict[str, tuple[RoutedMethod, Tensors]] = {}

    def all(self) -> list[Model]:
        """All of them, newest first; without those whose plan this version cannot read (any more)."""
        registry = self._registry
        registry.require_ready()
        ended = registry.ended()
        found: list[Model] = []
        for published in registry.journal.published().values():
            row = ended.get(published.digest)
            if row is None:
                continue
            try:
                found.append(Model(row, published, tuple(sorted(plan_of(row).cohort.nodes))))
            except DataError:
                continue
        return sorted(found, key=lambda m: (-m.row.ended_ms, m.row.digest))

    def get(self, digest: str) -> Model:
        """The run with this digest. Raises ``RemoteProtocolError`` when it answers no queries, ``WireError`` while the
        coordinator is starting."""
        registry = self._registry
        registry.require_ready()
        published, row = registry.journal.published().get(digest), registry.ended().get(digest)
        if published is None or row is None:
            raise RemoteProtocolError(f"run {digest[:12]!r} answers no queries here", hint="list the models")
        return Model(row, published, tuple(sorted(plan_of(row).cohort.nodes)))

    def routing(self, digest: str, offset: int, chunk: int) -> Iterator[bytes]:
        """The routing parameters from ``offset`` on, in pieces. Raises as ``get`` does, and for a wrong offset."""
        published = self.get(digest).published
        if offset > published.routing_bytes:
            raise RemoteProtocolError(
                f"the routing parameters of run {digest[:12]} have {published.routing_bytes} bytes, not {offset}"
            )
        return self._registry.blobs.chunks(published.routing, offset, chunk)

    def taken_part(self, node: str, digests: Iterable[str]) -> list[str]:
        """Those of the runs that answer queries, and that the node took part in."""
        registry = self._registry
        registry.require_ready()
        published = registry.journal.published()
        wanted = [d for d in dict.fromkeys(digests) if d in published and d in registry.ended()]
        return [d for d in wanted if registry.journal.members(d).get(node, (False, ""))[0]]

    def scores(self, digest: str, x: Array) -> tuple[tuple[str, ...], Array]:
        """The nodes, and the routing scores of records ``x`` (float32 (n, *shape)): float64 (n, m), the larger the
        better. Raises as ``get`` does, and ``DataError`` for records of another shape, or not finite."""
        method, parameters = self._router(self.get(digest))
        scores = method.route(parameters, x)
        if scores.shape != (len(x), len(method.nodes)) or not np.isfinite(scores).all():
            raise DataError(f"run {digest[:12]}: its routing gives no finite score for this record")
        return method.nodes, scores

    def _router(self, model: Model) -> tuple[RoutedMethod, Tensors]:
        """The method and its routing parameters, made once and kept. Computes outside of the registry's lock."""
        digest, registry = model.row.digest, self._registry
        with self._building:
            found = self._routers.pop(digest, None)
            if found is None:
                method = registry.build_method(plan_of(model.row))
                if not isinstance(method, RoutedMethod):
                    raise RemoteProtocolError(f"run {digest[:12]}: its method routes no queries")
                found = method, Tensors.from_bytes(registry.blobs.get(model.published.routing))
            self._routers[digest] = found
            while len(self._routers) > MAX_ROUTERS:
                del self._routers[next(iter(self._routers))]
        return found
