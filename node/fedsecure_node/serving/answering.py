"""From a relayed query to the message that answers it: open, verify, admit, predict, log, seal."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from fedsecure.crypto.sealing import SealingKey, seal
from fedsecure.errors import (
    ConfigError,
    FedSecureError,
    NodeUnreachable,
    PolicyError,
    ReleaseLogError,
    RemoteProtocolError,
    StoreError,
)
from fedsecure.prediction.answers import encode_prediction, encode_refusal
from fedsecure.prediction.queries import Query, answer_info, query_info
from fedsecure.text import counted
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure_node.link.connect import Link
from fedsecure_node.log.chain import PREDICTION, PREDICTION_REFUSED
from fedsecure_node.log.queries import Form, prediction_body, refusal_body
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.plans.reasons import forbidden, rules_in
from fedsecure_node.progress import Reporter
from fedsecure_node.serving.admission import Admission, Admitted, asked
from fedsecure_node.serving.models import Models
from fedsecure_node.store.store import Store, now_ms
from fedsecure_node.work import as_error

__all__ = ["Answerer"]

#: So many refusals of one analyst are logged in a minute; the others are counted in the next record.
REFUSALS_A_MINUTE = 3


@dataclass(frozen=True, slots=True)
class _Tools:
    """What an answer takes."""

    store: Store
    log: ReleaseLog
    models: Models
    admission: Admission


class Answerer:
    """Answers one query after the other; everything that it says of records is in the log first. For one thread."""

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
    ) -> None:
        self._use = _Tools(store, log, models, admission)
        self._reporter = reporter
        self._node = node
        self._device = device
        self._unlogged: dict[str, int] = {}
        self._told = ""
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
        try:
            query = self._use.admission.verify(relayed, self._opened(relayed, form), form)
        except FedSecureError as error:
            self._once(f"a query is refused: {error}")
            return self._plain(relayed, encode_refusal(error))
        outcome = self._outcome(query, form, link)
        if form == "plain":
            return self._plain(relayed, outcome)
        sealed = seal(query.reply_key, outcome.SerializeToString(deterministic=True), answer_info(query.digest))
        return pb.AnswerRequest(node_id=self._node, query_id=relayed.query_id, sealed=sealed)

    def _plain(self, relayed: pb.RelayedQuery, outcome: pb.Outcome) -> pb.AnswerRequest:
        return pb.AnswerRequest(node_id=self._node, query_id=relayed.query_id, plain=outcome)

    def _opened(self, relayed: pb.RelayedQuery, form: Form) -> pb.SignedStatement:
        if form == "plain":
            return relayed.plain
        try:
            body = self._key.open(relayed.sealed, query_info(relayed.plan_digest, self._node))
        except RemoteProtocolError:
            raise RemoteProtocolError(
                "the query is sealed to a key that this node does not have (any more)",
                hint="fetch the node's key again, and ask anew",
            ) from None
        try:
            return pb.SignedStatement.FromString(body)
        except DecodeError:
            raise RemoteProtocolError("what is sealed is no signed query") from None

    def _outcome(self, query: Query, form: Form, link: Link) -> pb.Outcome:
        try:
            admitted = self._use.admission.admit(query, form, now_ms(), link.clock_ms)
            outcome = self._predicted(query, admitted)
        except Exception as fault:
            error = as_error(fault)
            if isinstance(error, ReleaseLogError):
                raise
            self._refused(query, form, error)
            return encode_refusal(_public(error))
        self._logged(query, form, admitted, outcome, link)
        return outcome

    def _predicted(self, query: Query, admitted: Admitted) -> pb.Outcome:
        model = self._use.models.get(query.run)
        prediction = model.method.predict(self._node, model.serving, model.local, admitted.x, device=self._device)
        return encode_prediction(self._node, query.digest, prediction)

    def _logged(self, query: Query, form: Form, admitted: Admitted, outcome: pb.Outcome, link: Link) -> None:
        """Put an answer into the log, with the policy that allowed it; on the disk on return."""
        self._use.store.keep_policy(admitted.policy.digest, admitted.policy.text)
        data = outcome.SerializeToString(deterministic=True)
        body = prediction_body(
            asked(query, form),
            admitted.plan,
            query.run,
            answer_sha256=hashlib.sha256(data).hexdigest(),
            answer_bytes=len(data),
            policy=admitted.policy.digest,
            where=link.destination,
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

    def _refused(self, query: Query, form: Form, error: FedSecureError) -> None:
        """Log the refusal of a verified analyst, so that nobody can fill the disk: a few a minute, the rest counted."""
        analyst = query.analyst
        unlogged = self._unlogged.get(analyst, 0)
        if self._use.log.queries().refusals(analyst, now_ms()) >= REFUSALS_A_MINUTE:
            self._unlogged[analyst] = unlogged + 1
            return
        try:
            plan = self._use.store.plans.get(query.run).plan()
        except ConfigError:
            plan = None
        body = refusal_body(asked(query, form), plan, query.run, error=error, unlogged=unlogged)
        record = self._use.log.append(PREDICTION_REFUSED, body, only_if=lambda _: None)
        self._unlogged.pop(analyst, None)
        self._reporter.say(
            "refused-query", f"query {record.seq}: analyst {analyst} is refused: {error}", record=record.seq
        )

    def _once(self, text: str) -> None:
        """Say what nobody can be blamed for, but not over and over."""
        if self._told != text:
            self._told = text
            self._reporter.say("query", text)


def _public(error: FedSecureError) -> FedSecureError:
    """The error as an analyst may read it: rules about plans by name alone, nothing of the node's own affairs."""
    if isinstance(error, PolicyError) and not str(error).startswith("prediction."):
        return PolicyError(forbidden(rules_in(str(error))))
    if isinstance(error, StoreError):
        return NodeUnreachable("the node cannot read its model; its operator's log names the file")
    return error
