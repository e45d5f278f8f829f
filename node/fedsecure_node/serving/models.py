"""The models that this node answers with: which may be used now, and the few that are in memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from fedsecure.errors import FedSecureError, NodeUnreachable, PolicyError
from fedsecure.method import RoutedMethod
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.tensors import Tensors
from fedsecure_node.plans.approvals import Verdict, standing
from fedsecure_node.store.servingbook import Served
from fedsecure_node.store.store import Store
from fedsecure_node.work import BuildMethod

__all__ = ["Model", "Models"]

#: So many models stay in memory; another takes the place of the one that was asked longest ago.
IN_MEMORY = 2


@dataclass(frozen=True, slots=True)
class Model:
    """A run that can be asked: its shared parameters and this node's own heads, which stay out of ``repr``."""

    digest: str
    plan: Plan
    method: RoutedMethod
    serving: Tensors = field(repr=False)
    local: Tensors = field(repr=False)


class Models:
    """Loads what a run is answered with. For one thread."""

    def __init__(self, store: Store, build_method: BuildMethod) -> None:
        self._store = store
        self._build = build_method
        self._loaded: OrderedDict[tuple[str, str], Model] = OrderedDict()
        self._plans: dict[str, Plan] = {}

    def served(self, policy: Policy) -> list[str]:
        """Digests of the runs that are answered for under ``policy``: none while nobody may ask."""
        if not policy.prediction.analysts:
            return []
        found = []
        for served in self._store.serving.all():
            try:
                self.check_allowed(served.digest, policy)
            except FedSecureError:
                continue
            found.append(served.digest)
        return found

    def check_allowed(self, digest: str, policy: Policy) -> Plan:
        """The plan of a run that may be answered for now. Raises ``NodeUnreachable`` when this node has no model of it,
        ``PolicyError`` when policy or institution do not allow its plan (any more)."""
        run = self._store.runs.find(digest)
        if run is None or run.state != "completed" or not run.local or self._store.serving.find(digest) is None:
            raise NodeUnreachable(
                f"has no model of run {digest[:12]} to answer with", hint="another node of the run may have"
            )
        seen = self._store.plans.get(digest)
        plan = self._plans.setdefault(digest, seen.plan())
        policy.check_plan(plan)
        if standing(seen, Verdict(policy, (), "")) != "go":
            raise PolicyError(f"plan {plan.name}: is not approved (any more) at this institution")
        return plan

    def get(self, digest: str) -> Model:
        """The model of a run that ``check_allowed`` let pass. Raises ``StoreError`` when its files are damaged."""
        served = self._store.serving.find(digest)
        run = self._store.runs.find(digest)
        if served is None or run is None:
            raise NodeUnreachable(f"has no model of run {digest[:12]} to answer with")
        key = (digest, run.local)
        if key not in self._loaded:
            self._loaded[key] = self._load(served)
            while len(self._loaded) > IN_MEMORY:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _load(self, served: Served) -> Model:
        plan = self._plans.get(served.digest) or self._store.plans.get(served.digest).plan()
        method = self._build(plan)
        if not isinstance(method, RoutedMethod):
            raise NodeUnreachable(f"has no model of run {served.digest[:12]} that routes queries")
        return Model(
            served.digest, plan, method, self._store.serving.tensors(served), self._store.runs.local(served.digest)
        )
