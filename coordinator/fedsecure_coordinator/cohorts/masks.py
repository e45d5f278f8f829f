"""Whether a run's sums are masked, and under which cohort: decided once, when the run is first prepared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsecure.errors import ConfigError, StoreError
from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.values.masked import check_masked
from fedsecure.secagg.values.streams import Stream
from fedsecure_coordinator.cohorts.manifests import Cohorts

__all__ = ["CannotMask", "Masks", "decide", "require_manifest", "restore"]


_ADD = "fedsecure coordinator cohort add FILE"


class CannotMask(ConfigError):
    """A run's sums cannot be masked as its plan asks; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Masks:
    """A run's cohort, and the streams of each exchange that sums anything."""

    manifest: CohortManifest
    streams: Mapping[str, tuple[Stream, ...]]

    @property
    def cohort(self) -> str:
        """The manifest's digest, hex: what nodes compare with the one they pinned."""
        return self.manifest.digest.hex()

    def cover(self, exchange: str) -> bool:
        """Whether contributions to ``exchange`` come without their summed half."""
        return bool(self.streams.get(exchange))


def decide(plan: Plan, method: Method, cohorts: Cohorts) -> Masks | None:
    """How a new run is masked; ``None``: not at all.

    Raises ``CannotMask`` when its plan requires masks and no manifest of its nodes is here, or its sums cannot be
    masked, and ``StoreError`` for a damaged manifest.
    """
    if plan.secagg == "off":
        return None
    manifest = cohorts.for_nodes(plan.cohort.nodes)
    if manifest is not None:
        return _masks(plan, method, manifest)
    if plan.secagg == "optional":
        return None
    raise CannotMask(f"{_none(plan)}: {_ADD}, then submit the plan with another seed")


def require_manifest(plan: Plan, cohorts: Cohorts) -> None:
    """Raise ``CannotMask`` when a run of ``plan``, begun now, would end for want of a manifest; ``StoreError`` for a
    damaged one."""
    if plan.secagg == "required" and cohorts.for_nodes(plan.cohort.nodes) is None:
        raise CannotMask(f"plan {plan.name}: {_none(plan)}", hint=f"{_ADD}, then submit it again")


def _none(plan: Plan) -> str:
    nodes = ", ".join(plan.cohort.nodes)
    return f"secagg is 'required', and there is no manifest here of exactly {nodes} that all of them signed"


def restore(plan: Plan, method: Method, cohorts: Cohorts, cohort: str) -> Masks | None:
    """The masks of a run that began under ``cohort`` (a manifest's digest, hex; ``""``: without masks).

    Raises ``StoreError`` when that manifest is gone, ``CannotMask`` as ``decide`` does.
    """
    if not cohort:
        return None
    manifest = cohorts.by_digest(cohort)
    if manifest is None:
        raise StoreError(
            f"plan {plan.name}: the manifest {cohort[:12]} that its run is masked under is gone",
            hint="put the file back into the store's folder of cohorts, from a backup or a node",
        )
    return _masks(plan, method, manifest)


def _masks(plan: Plan, method: Method, manifest: CohortManifest) -> Masks:
    schemas = {exchange: method.schema(exchange) for exchange in method.exchanges}
    cohort = plan.cohort
    try:
        streams = check_masked(schemas, method=plan.method.name, nodes=cohort.nodes, min_nodes=cohort.min_nodes)
    except ConfigError as error:
        raise CannotMask(f"secagg is {plan.secagg!r}, and the sums cannot be masked: {error}") from None
    return Masks(manifest, streams)
