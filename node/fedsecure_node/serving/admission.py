"""Whether a query is answered: whose it is, whether it is fresh and new, what the policy says, and its records.

The order is fixed: statement, freshness, analyst, replay, run, sizes, limits, records. What comes later is not looked
at once an earlier check fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from fedsecure.crypto.certificates import check_ca, fingerprint
from fedsecure.crypto.revocation import load_crl
from fedsecure.crypto.statements import MAX_CERTIFICATE_BYTES
from fedsecure.errors import CertificateError, DataError, RemoteProtocolError, StoreError
from fedsecure.plan import Plan
from fedsecure.plan.task import ImageTask
from fedsecure.prediction.queries import Query, query_digest, read_query
from fedsecure.schema import TensorSpec
from fedsecure.tensors import Array, read_header
from fedsecure.wire.clock import MAX_CLOCK_SKEW_MS
from fedsecure.wire.credentials import TlsFiles
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure_node.log.queries import Asked, Form, QueryTally
from fedsecure_node.plans.institution import CurrentPolicy, PolicyWatch
from fedsecure_node.serving.models import Models

__all__ = ["Admission", "Admitted", "Nonces", "asked", "claimed"]

#: Nonces are kept for as long as a query that came now can be fresh: dated ahead by the most, then late by the most.
KEEP_S = 2 * MAX_CLOCK_SKEW_MS / 1000
#: With so many queries of one analyst in that time, no further one is taken: their nonces could not be kept. Only those
#: whom the policy names come so far, and none takes another's room.
MAX_NONCES = 10_000
#: Values of a table's rows are standardised and have no range of their own.
ANY = 3.4e38


@dataclass(frozen=True, slots=True)
class Admitted:
    """A query that is to be answered: the policy that allows it, the run's plan, and ``x`` float32 (n, *shape)."""

    policy: CurrentPolicy
    plan: Plan
    x: Array


class Nonces:
    """Which queries were seen while they could be fresh, by analyst and nonce; at most ``limit`` of each analyst."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, limit: int = MAX_NONCES) -> None:
        self._clock = clock
        self._limit = limit
        self._seen: dict[str, dict[bytes, float]] = {}

    def take(self, analyst: str, nonce: bytes) -> None:
        """Note a query. Raises ``RemoteProtocolError`` when it was seen before, or too many of the analyst were."""
        now = self._clock()
        seen = self._seen.setdefault(analyst, {})  # oldest first
        while seen and next(iter(seen.values())) <= now - KEEP_S:
            del seen[next(iter(seen))]
        if nonce in seen:
            raise replayed(analyst)
        if len(seen) >= self._limit:
            raise RemoteProtocolError(f"too many queries of analyst {analyst} within minutes", hint="ask again later")
        seen[nonce] = now


def replayed(analyst: str) -> RemoteProtocolError:
    """The error for a query that comes a second time."""
    return RemoteProtocolError(
        f"query of analyst {analyst}: came a second time", hint="every query is answered once; make a new one"
    )


class Admission:
    """Decides about queries. For one thread."""

    def __init__(
        self,
        *,
        node: str,
        federation: str,
        files: Callable[[], TlsFiles],
        watch: PolicyWatch,
        models: Models,
        tally: Callable[[], QueryTally],
    ) -> None:
        self._node = node
        self._federation = federation
        self._files = files
        self._watch = watch
        self._models = models
        self._tally = tally
        self._nonces = Nonces()

    def verify(self, relayed: pb.RelayedQuery, statement: pb.SignedStatement, form: Form) -> Query:
        """The query that the named analyst signed for this node and run. Raises ``CertificateError`` or
        ``RemoteProtocolError``: then it is nobody's, and what it says counts for nothing; ``StoreError`` when this node
        cannot read what it checks certificates with."""
        ca_pem, crl_pem = self._trust()
        return read_query(
            statement,
            ca_pem=ca_pem,
            crl_pem=crl_pem,
            federation=self._federation,
            run=relayed.plan_digest,
            node=self._node if form == "sealed" else "",
            analyst=relayed.analyst_id,
            now=datetime.now(UTC),
        )

    def _trust(self) -> tuple[bytes, bytes | None]:
        """CA certificate and revocation list, as they are now and in order."""
        files = self._files()
        try:
            ca_pem, crl_pem = files.ca_pem(), files.crl_pem()
            ca = check_ca(ca_pem, datetime.now(UTC))
            if crl_pem is not None:
                load_crl(crl_pem, ca)
        except CertificateError as error:
            raise StoreError(str(error), hint=error.hint) from None
        return ca_pem, crl_pem

    def admit(self, query: Query, form: Form, now_ms: int, clock_ms: int) -> Admitted:
        """Let a verified query pass, by the policy as it is now. ``now_ms``: this machine's clock; ``clock_ms``: the
        coordinator's minus it.

        Raises ``RemoteProtocolError`` (stale, or seen before), ``PolicyError`` naming the rule, ``PolicyUnusable``,
        ``NodeUnreachable`` (no model of the run) or ``DataError`` naming tensor x.
        """
        _check_fresh(query, now_ms + clock_ms)
        current = self._watch.read()
        current.policy.check_analyst(query.analyst, readable=form == "plain")
        self._nonces.take(query.analyst, query.nonce)
        tally = self._tally()
        if tally.was_answered(query.digest):  # before this daemon started
            raise replayed(query.analyst)
        plan = self._models.check_allowed(query.run, current.policy)
        shape = _shape(query)
        current.policy.check_query(query.analyst, shape[0], tally.answered(query.analyst, now_ms))
        return Admitted(current, plan, _records(query, plan, shape))


def asked(query: Query, form: Form) -> Asked:
    """What the log keeps of a verified query."""
    try:
        records = _shape(query)[0]
    except DataError:
        records = 0
    return Asked(query.digest, query.analyst, query.fingerprint, records, form)


def claimed(relayed: pb.RelayedQuery, statement: pb.SignedStatement | None, form: Form) -> Asked:
    """What the log keeps of a query that did not open (``statement`` is ``None``) or was not verified."""
    if statement is None:
        return Asked("", relayed.analyst_id, "", 0, form, verified=False)
    try:
        certificate = fingerprint(statement.certificate) if len(statement.certificate) <= MAX_CERTIFICATE_BYTES else ""
    except CertificateError:
        certificate = ""
    return Asked(query_digest(statement.body), relayed.analyst_id, certificate, 0, form, verified=False)


def _check_fresh(query: Query, now_ms: int) -> None:
    age = now_ms - query.unix_ms
    if abs(age) > MAX_CLOCK_SKEW_MS:
        raise RemoteProtocolError(
            f"query of analyst {query.analyst}: is dated {abs(age) // 1000} s {'back' if age > 0 else 'ahead'} "
            f"(allowed: {MAX_CLOCK_SKEW_MS // 1000} s)",
            hint="compare the clocks; make a new query",
        )


def _shape(query: Query) -> tuple[int, ...]:
    """Shape of tensor x by its header alone. Raises ``DataError``."""
    header = read_header(query.records)
    if set(header) != {"x"} or not header["x"][1]:
        raise DataError("a query holds tensor x alone, float32 records (n, *shape)")
    return header["x"][1]


def _records(query: Query, plan: Plan, shape: tuple[int, ...]) -> Array:
    """The records, of the shape and range of the plan's task. Raises ``DataError`` naming tensor x."""
    image = isinstance(plan.task, ImageTask)
    low, high = (0.0, 1.0) if image else (-ANY, ANY)
    spec = TensorSpec("x", "float32", (shape[0], *plan.task.feature_shape), low, high, "records to answer for")
    spec.check_header(read_header(query.records)["x"][0], shape, {})
    x = query.x["x"]
    spec.check_values(x)
    return x
