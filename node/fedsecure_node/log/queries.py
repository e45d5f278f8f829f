"""Queries as the log tells them: what was answered or refused to whom, and how much of it in the last hour."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from fedsecure.errors import FedSecureError, ReleaseLogError
from fedsecure.plan import Plan
from fedsecure.privacy.labels import NONE, Guarantee
from fedsecure.text import printable
from fedsecure_node.log.chain import PREDICTION, PREDICTION_REFUSED, Record
from fedsecure_node.log.records import Destination

__all__ = [
    "HOUR_MS",
    "MINUTE_MS",
    "UNVERIFIED",
    "Asked",
    "Entry",
    "Form",
    "QueryTally",
    "counted_body",
    "entries",
    "prediction_body",
    "refusal_body",
]

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
#: Whether the coordinator could read a query and its answer (``plain``) or not (``sealed``).
Form = Literal["sealed", "plain"]
#: All senders whose certificate or signature was refused, as one source: no analyst has an empty name.
UNVERIFIED: Final = ""
#: What a sender claims is cut to this (characters).
MAX_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """A query as the log keeps it. ``query``: SHA-256 of the query's bytes, ``""`` when it did not open;
    ``certificate``: fingerprint of the analyst's; ``records``: how many, 0 when that was not looked at. ``verified``:
    certificate and signature are the analyst's; else both are what the sender claims."""

    query: str
    analyst: str
    certificate: str
    records: int
    form: Form
    verified: bool = True

    @property
    def source(self) -> str:
        """Whose refusals this one is counted with: the analyst's, or those of all unverified senders."""
        return self.analyst if self.verified else UNVERIFIED

    def to_json(self, plan: Plan | None, digest: str) -> dict[str, Any]:
        """The fields that both kinds of records have; ``plan``: ``None`` for a run that this node never heard of."""
        return {
            "query": self.query,
            "plan": {
                "digest": _claimed(digest),
                "name": plan.name if plan else "",
                "method": plan.method.name if plan else "",
            },
            "analyst": _claimed(self.analyst),
            "certificate": self.certificate,
            "verified": self.verified,
            "records": self.records,
            "form": self.form,
        }


def _claimed(text: str) -> str:
    return printable(text[:MAX_NAME])


def prediction_body(
    asked: Asked,
    plan: Plan,
    digest: str,
    *,
    answer_sha256: str,
    answer_bytes: int,
    policy: str,
    where: Destination,
    guarantee: Guarantee = NONE,
) -> Mapping[str, Any]:
    """The ``prediction`` record's own fields. ``answer_…``: of the answer as the analyst reads it, before it is sealed;
    ``policy``: SHA-256 of the policy that allowed it; ``guarantee``: what may be said of the answer."""
    return {
        **asked.to_json(plan, digest),
        "answer": {"sha256": answer_sha256, "bytes": answer_bytes},
        "policy": policy,
        "guarantee": guarantee.to_json(),
        "destination": {"address": where.address, "certificate": where.certificate},
    }


def refusal_body(
    asked: Asked, plan: Plan | None, digest: str, *, error: FedSecureError, unlogged: int
) -> Mapping[str, Any]:
    """The ``prediction-refused`` record's own fields. ``rule``: the policy's, or the error's name; ``unlogged``: how
    many queries of the same source (see ``Asked.source``) were refused before without a record of their own."""
    rule, separator, _ = str(error).partition(":")
    named = separator and rule.startswith("prediction.")
    return {
        **asked.to_json(plan, digest),
        "error": type(error).__name__,
        "rule": rule if named else type(error).__name__,
        "reason": str(error)[:400],
        "unlogged": unlogged,
    }


def counted_body(source: str, count: int) -> Mapping[str, Any]:
    """The fields of a ``prediction-refused`` record that speaks of no query of its own: ``count`` of ``source`` were
    refused beyond those that have records."""
    return {
        "query": "",
        "plan": {"digest": "", "name": "", "method": ""},
        "analyst": source,
        "certificate": "",
        "verified": source != UNVERIFIED,
        "records": 0,
        "form": "",
        "error": "",
        "rule": "",
        "reason": "too many in a minute for records of their own",
        "unlogged": count,
    }


@dataclass(frozen=True, slots=True)
class Entry:
    """One query of the log, for people and ``--json``."""

    number: int
    time: str
    answered: bool
    body: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {"record": self.number, "time": self.time, "answered": self.answered, **self.body}


def entries(records: Iterable[Record]) -> Iterator[Entry]:
    """The queries of a verified log, oldest first."""
    for record in records:
        if record.kind in (PREDICTION, PREDICTION_REFUSED):
            yield Entry(record.seq, record.time, record.kind == PREDICTION, record.body)


def unix_ms(record: Record) -> int:
    """When a record was made, milliseconds since 1970-01-01 UTC. Raises ``ReleaseLogError`` for what is no time."""
    try:
        return int(datetime.fromisoformat(record.time).astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ReleaseLogError(f"release log, record {record.seq}: its time is no time") from None


@dataclass(slots=True)
class QueryTally:
    """What the limits are counted from, kept up with the log record by record: the last hour alone, so that neither a
    long log nor a restart changes what a query costs."""

    _answered: deque[tuple[int, str, int, str]] = field(default_factory=deque)  # time, analyst, records, query
    _refused: deque[tuple[int, str]] = field(default_factory=deque)  # time, analyst
    _records: Counter[str] = field(default_factory=Counter)
    _queries: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, records: Iterable[Record]) -> QueryTally:
        """The tally of a whole log."""
        tally = cls()
        for record in records:
            tally.add(record)
        return tally

    def add(self, record: Record) -> None:
        """Count one more record; those that speak of no query change nothing."""
        if record.kind == PREDICTION:
            body = record.body
            analyst, records, query = str(body["analyst"]), int(body["records"]), str(body["query"])
            self._forget(unix_ms(record))
            self._answered.append((unix_ms(record), analyst, records, query))
            self._records[analyst] += records
            self._queries.add(query)
        elif record.kind == PREDICTION_REFUSED:
            if not record.body.get("form", "sealed"):
                return  # a count, no query
            verified = record.body.get("verified", True)
            self._refused.append((unix_ms(record), str(record.body["analyst"]) if verified else UNVERIFIED))
            while self._refused[0][0] <= self._refused[-1][0] - MINUTE_MS:
                self._refused.popleft()

    def answered(self, analyst: str, now_ms: int) -> int:
        """Records of ``analyst`` that were answered in the hour before ``now_ms``."""
        self._forget(now_ms)
        return self._records[analyst]

    def was_answered(self, query: str) -> bool:
        """Whether the query of this digest was answered within the last hour."""
        return query in self._queries

    def refusals(self, source: str, now_ms: int) -> int:
        """Refusals of an analyst, or of ``UNVERIFIED``, that were logged in the minute before ``now_ms``."""
        return sum(1 for at, name in self._refused if name == source and at > now_ms - MINUTE_MS)

    def _forget(self, now_ms: int) -> None:
        while self._answered and self._answered[0][0] <= now_ms - HOUR_MS:
            _, analyst, records, query = self._answered.popleft()
            self._records[analyst] -= records
            if not self._records[analyst]:
                del self._records[analyst]
            self._queries.discard(query)
