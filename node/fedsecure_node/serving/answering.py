"""From a relayed query to the message that answers it: open, verify, admit, predict, log, seal or sign."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from fedsecure.crypto.sealing import SealingKey
from fedsecure.crypto.statements import Signer
from fedsecure.errors import FedSecureError, NodeUnreachable, PolicyError, ReleaseLogError, StoreError
from fedsecure.plan import Plan
from fedsecure.prediction.answers import encode_prediction, encode_refusal
from fedsecure.prediction.queries import Query
from fedsecure.privacy.labels import NONE, Guarantee
from fedsecure.text import counted
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure_node.link.connect import Link
from fedsecure_node.log.chain import PREDICTION
from fedsecure_node.log.queries import Form, prediction_body
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.plans.reasons import forbidden, rules_in
from fedsecure_node.progress import Reporter
from fedsecure_node.serving.admission import Admission, Admitted, asked, claimed
from fedsecure_node.serving.envelopes import Envelope, envelope_for, unsealed
from fedsecure_node.serving.models import Models
from fedsecure_node.serving.refusals import Refusals
from fedsecure_node.store.store import Store, now_ms
from fedsecure_node.work import as_error

__all__ = ["Answerer"]


@dataclass(frozen=True, slots=True)
class _Tools:
    """What an answer takes."""

    store: Store
    log: ReleaseLog
    models: Models
    admission: Admission


class Answerer:
    """Answers one query after the other; everything that it says of records is in the log first. For one thread.

    ``signer``: who signs answers in the plain form, by the node's files as they are now; raises ``StoreError``.
    ``guarantee_of``: what may be said now of an answer about a plan, by its digest."""

    def __init__(
        self,
        store: Store,
        log: ReleaseLog,
        reporter: Reporter,
        *,
        models: Models,
        admission: Admission,
        node: str,
        device: str,
        signer: Callable[[], Signer],
        guarantee_of: Callable[[Plan, str], Guarantee] = lambda plan, digest: NONE,
    ) -> None:
        self._use = _Tools(store, log, models, admission)
        self._guarantee_of = guarantee_of
        self._reporter = reporter
        self._node = node
        self._device = device
        self._signer = signer
        self._refusals = Refusals(store, log, reporter)
        #: Of this process alone: nothing that lies on a disk opens what was sealed to it.
        self._key = SealingKey.generate()

    @property
    def public_key(self) -> bytes:
        """What queries are sealed to (X25519, 32 bytes)."""
        return self._key.public

    def answer(self, relayed: pb.RelayedQuery, link: Link) -> pb.AnswerRequest | None:
        """The answer to a query, or the refusal; ``None`` when nobody waits for it any more. Raises ``StoreError`` and
        ``ReleaseLogError`` when it cannot be logged: then nothing is to leave."""
        self._use.store.check_there()
        if now_ms() + link.clock_ms > relayed.deadline_unix_ms:
            return None
        form: Form = "sealed" if relayed.WhichOneof("form") == "sealed" else "plain"
        statement = None
        try:
            statement = unsealed(relayed, self._key, self._node)
            envelope = envelope_for(statement, plain=form == "plain", signer=self._signer)
        except FedSecureError as error:
            self._refusals.note(claimed(relayed, statement, form), relayed.plan_digest, error)
            told = encode_refusal(error).refusal
            return pb.AnswerRequest(node_id=self._node, query_id=relayed.query_id, refusal=told)
        data = self._checked(relayed, statement, form, envelope, link)
        return envelope.closed(data, self._node, relayed.query_id)

    def settle(self, *, everything: bool = False) -> None:
        """Put counts of refused queries into the log: see ``Refusals.settle``."""
        self._refusals.settle(everything=everything)

    def _checked(
        self, relayed: pb.RelayedQuery, statement: pb.SignedStatement, form: Form, envelope: Envelope, link: Link
    ) -> bytes:
        """The answer's bytes. A query of which nobody is known to have signed it is refused to whoever sent it: its
        reply key may well be known, and what is wrong with a certificate is not for the coordinator to read."""
        try:
            query = self._use.admission.verify(relayed, statement, form)
        except FedSecureError as error:
            self._refusals.note(claimed(relayed, statement, form), relayed.plan_digest, error)
            return envelope.data(encode_refusal(error))
        return self._outcome(query, form, envelope, link)

    def _outcome(self, query: Query, form: Form, envelope: Envelope, link: Link) -> bytes:
        """The bytes of what a verified query comes to, prediction or refusal; logged on return."""
        try:
            admitted = self._use.admission.admit(query, form, now_ms(), link.clock_ms)
            outcome = self._predicted(query, admitted)
        except Exception as fault:
            error = as_error(fault)
            if isinstance(error, ReleaseLogError):
                raise
            self._refusals.note(asked(query, form), query.run, error)
            return envelope.data(encode_refusal(_public(error)))
        data = envelope.data(outcome)
        self._logged(query, form, admitted, data, link)
        return data

    def _predicted(self, query: Query, admitted: Admitted) -> pb.Outcome:
        model = self._use.models.get(query.run)
        prediction = model.method.predict(self._node, model.serving, model.local, admitted.x, device=self._device)
        return encode_prediction(self._node, query.digest, prediction)

    def _logged(self, query: Query, form: Form, admitted: Admitted, data: bytes, link: Link) -> None:
        """Put the answer of these bytes into the log, with the policy that allowed it; on the disk on return."""
        self._use.store.keep_policy(admitted.policy.digest, admitted.policy.text)
        body = prediction_body(
            asked(query, form),
            admitted.plan,
            query.run,
            answer_sha256=hashlib.sha256(data).hexdigest(),
            answer_bytes=len(data),
            policy=admitted.policy.digest,
            where=link.destination,
            guarantee=self._guarantee_of(admitted.plan, query.run),
        )
        record = self._use.log.append(PREDICTION, body, only_if=lambda _: None)
        self._reporter.say(
            "answered",
            f"query {record.seq}: {counted(body['records'], 'record')} of analyst {query.analyst} answered, plan"
            f" {admitted.plan.name}",
            record=record.seq,
            analyst=query.analyst,
            plan=query.run,
        )


def _public(error: FedSecureError) -> FedSecureError:
    """The error as an analyst may read it: rules about plans by name alone, nothing of the node's own affairs."""
    if isinstance(error, PolicyError) and not str(error).startswith("prediction."):
        return PolicyError(forbidden(rules_in(str(error))))
    if isinstance(error, StoreError):
        return NodeUnreachable("the node cannot read its model; its operator's log names the file")
    return error
