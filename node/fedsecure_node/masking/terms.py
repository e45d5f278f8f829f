"""Under whose masks the summed half of an exchange goes: what plan, policy and pin say, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from fedsecure.errors import ConfigError, PolicyError, RemoteProtocolError, SecAggError
from fedsecure.masked_plan import noised_streams
from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.protocol.results import result_digest
from fedsecure.secagg.values.masked import masked_streams
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.masks import MaskedSum
from fedsecure_node.masking.announced import Place, check_announced_sum
from fedsecure_node.store.sessionbook import Asked, SessionBook

__all__ = ["MaskTerms", "Terms", "TrustedCohorts"]


class TrustedCohorts(Protocol):
    """The cohorts that this node's people trust."""

    def for_nodes(self, nodes: Iterable[str]) -> CohortManifest:
        """The pinned manifest of exactly these nodes. Raises ``ConfigError`` when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """``masks``: of the exchange's summed half, ``None`` for none. ``asked``: what is kept of how it was asked for.
    ``announced``: of which exchange the sum is that came with it, ``None`` for none."""

    masks: MaskedSum | None
    asked: Asked
    announced: Place | None


class MaskTerms:
    """Says of each exchange whether its sum is masked, or why the run is to be left. Nothing is computed before."""

    def __init__(self, book: SessionBook, cohorts: TrustedCohorts, *, node_id: str) -> None:
        self._book = book
        self._cohorts = cohorts
        self._node = node_id

    def check(self, plan: Plan, method: Method, key: ExchangeKey, work: pb.Exchange, policy: Policy) -> Terms:
        """The terms of ``work``, an exchange of ``plan``.

        Raises ``SecAggError`` BAD_COHORT when the coordinator names another cohort than the one that is pinned for the
        plan's nodes, or none is; ``PolicyError`` for release.masks; ``RemoteProtocolError`` when it wants a plain sum
        where the plan or the run has masks, masks where the plan has none, or announces a sum that does not fit.
        """
        if work.cohort_digest:
            masks = self._masked(plan, method, key, work.cohort_digest, policy)
        else:
            masks = None
            self._check_plain(plan, method, key, policy)
        if work.result and plan.secagg == "off":
            raise RemoteProtocolError(f"{key}: the coordinator announces a masked sum, in a run without masks")
        announced = None
        if work.result or self._book.is_masked(key.plan):
            manifest, least = self._pinned(plan), _min_nodes(plan, policy)
            announced = check_announced_sum(
                work, method, key, manifest, self._book, plan=plan, node=self._node, least=least
            )
        return Terms(masks, Asked(work.cohort_digest, result_digest(work.result)), announced)

    def masks(self, plan: Plan, method: Method, key: ExchangeKey, policy: Policy) -> MaskedSum | None:
        """The masks of an exchange under the manifest that is pinned now, over as many nodes as ``plan`` and ``policy``
        ask for, and the noise that its round takes; ``None`` when it sums nothing. Raises ``SecAggError`` as above."""
        manifest = self._pinned(plan)
        name, schema = plan.method.name, method.schema(key.exchange)
        streams = masked_streams(schema, method=name, exchange=key.exchange, nodes=len(manifest.nodes))
        streams, noises = noised_streams(plan, key.round, streams)
        return MaskedSum(manifest, streams, name, _min_nodes(plan, policy), noises) if streams else None

    def _masked(self, plan: Plan, method: Method, key: ExchangeKey, digest: str, policy: Policy) -> MaskedSum | None:
        if plan.secagg == "off":
            raise RemoteProtocolError(
                f"{key}: the coordinator asks for masks, and the plan says secagg 'off'",
                hint="the coordinator is at fault; ask its operator",
            )
        pinned = self._pinned(plan).digest.hex()
        if digest != pinned:
            raise SecAggError(
                f"BAD_COHORT: {key}: the coordinator names the cohort {digest[:16]!r}…, pinned is {pinned[:16]}…",
                hint="compare both manifests: fedsecure node cohort verify; pin the newer one if it is right",
            )
        return self.masks(plan, method, key, policy)

    def _check_plain(self, plan: Plan, method: Method, key: ExchangeKey, policy: Policy) -> None:
        if not method.schema(key.exchange).summed:
            return
        if plan.secagg == "required":
            raise RemoteProtocolError(
                f"{key}: the coordinator asks for a sum without masks, and the plan says secagg 'required'",
                hint="the coordinator is at fault; nothing was computed",
            )
        if policy.release.masks == "required":
            raise PolicyError(
                "release.masks: the coordinator asks for a sum without masks (allowed: under masks)",
                hint="the coordinator needs the cohort's signed manifest: fedsecure coordinator cohort add",
            )
        if self._book.is_masked(key.plan):
            raise RemoteProtocolError(
                f"{key}: the coordinator asks for a sum without masks, in a run whose sums were masked before",
                hint="whether a run is masked is decided once; nothing was computed",
            )

    def _pinned(self, plan: Plan) -> CohortManifest:
        try:
            return self._cohorts.for_nodes(plan.cohort.nodes)
        except ConfigError as error:
            raise SecAggError(f"BAD_COHORT: {error}", hint=error.hint) from None


def _min_nodes(plan: Plan, policy: Policy) -> int:
    """The fewest nodes of a sum, by the plan and by the policy as it is now."""
    return max(plan.cohort.min_nodes, policy.plans.min_nodes)
