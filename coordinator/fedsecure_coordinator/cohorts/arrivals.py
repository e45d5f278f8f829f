"""Telling the operator of manifests that a command added while the daemon runs: they count from that moment on."""

from __future__ import annotations

import logging

from fedsecure.errors import FedSecureError
from fedsecure_coordinator.cohorts.manifests import Cohorts

__all__ = ["Arrivals"]

_log = logging.getLogger("fedsecure.coordinator")


class Arrivals:
    """Manifests that are there when it is made are no news."""

    def __init__(self, cohorts: Cohorts) -> None:
        self._cohorts = cohorts
        self._known = cohorts.digests()

    def tell(self) -> None:
        """Log what was added since the last time. To be called now and then."""
        there = self._cohorts.digests()
        for digest in sorted(there - self._known):
            self._tell_one(digest)
        self._known = there

    def _tell_one(self, digest: str) -> None:
        try:
            manifest = self._cohorts.by_digest(digest)
        except FedSecureError as error:
            _log.warning("a manifest was added that cannot be used: %s", error)
            return
        if manifest is not None:
            nodes = ", ".join(member.node for member in manifest.nodes)
            fields = {"event": "cohort", "cohort": manifest.cohort, "version": manifest.version, "digest": digest}
            _log.info(
                "cohort %s, version %d (%s) was added: %s",
                manifest.cohort,
                manifest.version,
                digest[:12],
                nodes,
                extra={"fields": fields},
            )
