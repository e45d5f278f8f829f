"""What the log says of cohorts: which manifest this node's people trusted, when, who did, and when that was taken
back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure_node.log.chain import TRUSTED, UNTRUSTED, Record

__all__ = ["CohortDecision", "cohort_decisions", "last_decision", "trusted_body", "untrusted_body"]


def trusted_body(manifest: CohortManifest, *, by: str) -> Mapping[str, Any]:
    """The ``trusted`` record's own fields."""
    return {
        "cohort": manifest.cohort,
        "version": manifest.version,
        "digest": manifest.digest.hex(),
        "nodes": [{"node": m.node, "fingerprint": m.fingerprint} for m in manifest.nodes],
        "by": by,
    }


def untrusted_body(cohort: str, version: int, digest: str, *, by: str, reason: str) -> Mapping[str, Any]:
    """The ``untrusted`` record's own fields; ``digest``: of the manifest that was trusted."""
    return {"cohort": cohort, "version": version, "digest": digest, "by": by, "reason": reason}


@dataclass(frozen=True, slots=True)
class CohortDecision:
    """One of both. ``record``: its number."""

    record: int
    time: str
    kind: str
    body: Mapping[str, Any]

    @classmethod
    def of(cls, record: Record) -> CohortDecision:
        """From a record of one of both kinds."""
        return cls(record.seq, record.time, record.kind, record.body)

    @property
    def version(self) -> int:
        """Of the manifest."""
        return int(self.body["version"])

    @property
    def digest(self) -> str:
        """Of the manifest, in hexadecimal digits."""
        return str(self.body["digest"])

    def line(self) -> str:
        """For people."""
        what = "trusted" if self.kind == TRUSTED else "no longer trusted"
        why = f": {self.body['reason']}" if self.body.get("reason") else ""
        by = self.body["by"]
        return f"cohort {self.body['cohort']}, version {self.version}, {self.digest[:12]}: {what} by {by}{why}"

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"record": self.record, "time": self.time, "kind": self.kind, **self.body}


def cohort_decisions(records: Iterable[Record]) -> Iterator[CohortDecision]:
    """Every one, in order."""
    return (CohortDecision.of(record) for record in records if record.kind in (TRUSTED, UNTRUSTED))


def last_decision(records: Iterable[Record], cohort: str) -> CohortDecision | None:
    """The last one about the cohort of this name."""
    found = [decision for decision in cohort_decisions(records) if decision.body["cohort"] == cohort]
    return found[-1] if found else None
