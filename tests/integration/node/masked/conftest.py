"""The scripted coordinator also opens sessions of masked sums: the node under test among peers in this process."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from fedsecure.crypto.keystream import Prg
from fedsecure.crypto.signatures import ephemeral_identity, load_identity
from fedsecure.errors import FedSecureError
from fedsecure.masked_plan import noised_streams
from fedsecure.methods import build_method
from fedsecure.schema import Schema
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.machines.coordinator import SecAggCoordinator, Sums
from fedsecure.secagg.machines.due import SessionDue
from fedsecure.secagg.machines.memory import MAX_SESSIONS, MemoryOnly, session_numbers
from fedsecure.secagg.machines.node import SecAggNode
from fedsecure.secagg.machines.session import deliver
from fedsecure.secagg.protocol.aborts import parse_abort
from fedsecure.secagg.protocol.results import SessionResult, result_digest
from fedsecure.secagg.protocol.sessionconfig import SessionConfig
from fedsecure.secagg.values.fixedpoint import ring_dtype
from fedsecure.secagg.values.masked import masked_streams
from fedsecure.secagg.values.noise import dp_digest
from fedsecure.secagg.values.noised import NoisedVectors
from fedsecure.wire.status import to_status
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure.wire.v1.coordinator_pb2_grpc import CoordinatorServicer, add_CoordinatorServicer_to_server
from fedsecure_node.masking.pins import Pins
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store

#: ``attack_steps`` lies here and is no test itself.
sys.path.insert(0, str(Path(__file__).parent))

NODES = ("hospital-a", "hospital-b", "hospital-c")
OWN, FEDERATION = NODES[0], "heart-study"


class Cohort:
    """The manifest of ``nodes``, signed by all: the node under test, their first, by its own key, its peers by fresh
    ones."""

    def __init__(self, folder: Path, version: int = 1, nodes: tuple[str, ...] = NODES) -> None:
        self.folder, self.nodes = folder, nodes
        self.identities = {node: ephemeral_identity() for node in nodes[1:]}
        self.identities[OWN] = load_identity(folder / "identity.key")
        self.manifest = self.signed(version)

    def signed(self, version: int) -> CohortManifest:
        keys = {node: identity.public_bytes for node, identity in self.identities.items()}
        manifest = CohortManifest.form(FEDERATION, "hospitals", version, keys)
        for node, identity in self.identities.items():
            manifest = manifest.signed(node, identity)
        return manifest

    @property
    def digest(self) -> str:
        return self.manifest.digest.hex()

    def pin(self, manifest: CohortManifest | None = None) -> None:
        settings = load_settings(self.folder)
        own = self.identities[OWN].public_bytes
        with Store(settings.store) as store:
            Pins(store, node=OWN, federation=FEDERATION, public_bytes=own).pin(manifest or self.manifest)


class Session:
    """One session. ``mutate(leg, message)``: what the node gets in place of the message that is due. Peers take the
    configuration, whatever it is, for the one that is due."""

    def __init__(self, cohort: Cohort, plan: Any, work: pb.Exchange, number: int = 0, **changes: Any) -> None:
        schema = build_method(plan).schema(work.exchange)
        streams = masked_streams(schema, method=plan.method.name, exchange=work.exchange, nodes=len(cohort.nodes))
        self.streams, noises = noised_streams(plan, work.round, streams)
        self.work, self.manifest = work, cohort.manifest
        self.mutate: Callable[[int, bytes], bytes] = lambda leg, message: message
        #: Legs whose answer by the node is not taken in, so that it is asked again.
        self.forgets: set[int] = set()
        #: While it is set, no leg closes.
        self.held = False
        self.deadline_ms = changes.pop("deadline_ms", time.time_ns() // 1_000_000 + 120_000)
        fields: dict[str, Any] = {
            "experiment": plan.digest(), "round": work.round, "purpose": work.exchange,
            "attempt": session_numbers(work.attempt)[number % MAX_SESSIONS],
            "cohort_digest": self.manifest.digest, "state_digest": bytes.fromhex(work.broadcast_digest),
            "prev_result": result_digest(work.result), "threshold": 3, "min_survivors": 3, "prg": Prg.AES_256_CTR,
            "streams": tuple(s.spec for s in self.streams), "dp_digest": dp_digest(noises),
            "nonce": bytes(31) + bytes([number]), "deadline_ms": self.deadline_ms,
        }  # fmt: skip
        self.config = SessionConfig(**{**fields, **changes})
        noises = noises if self.config.dp_digest == dp_digest(noises) else ()  # it may deny that it knows of any
        self.machine = SecAggCoordinator(self.config, self.manifest, self.streams, cohort.nodes, noises=noises)
        self.peers = {node: self._peer(node, cohort) for node in cohort.nodes[1:]}
        self.answers: list[tuple[int, bytes]] = []
        self.aborted: Any = None
        self.sums: Sums | None = None
        self.failure: FedSecureError | None = None
        self.turn = threading.RLock()
        self.pump()

    def _peer(self, node: str, cohort: Cohort) -> SecAggNode:
        """A peer whose vector is all ones, without noise."""
        config = self.config
        due = SessionDue(
            node=node, manifest=self.manifest, experiment=config.experiment, round=config.round,
            purpose=config.purpose, streams=self.streams, state_digest=config.state_digest,
            prev_result=config.prev_result, min_survivors=3, dp_digest=config.dp_digest,
        )  # fmt: skip
        ones = {s.spec.name: np.ones(s.spec.length, ring_dtype(s.spec.ring_bits)) for s in self.streams}
        about = (config.experiment, config.purpose, config.round)
        return SecAggNode(
            due,
            cohort.identities[node],
            NoisedVectors(ones, about, config.dp_digest) if config.dp_digest else ones,
            MemoryOnly(),
            now_ms=lambda: 0 if self.deadline_ms == 1 else time.time_ns() // 1_000_000,
        )

    def own(self) -> dict[str, np.ndarray]:
        """The node's own vectors: the sum without the peers' ones."""
        assert self.sums is not None
        peers = len(self.sums.survivors) - 1
        return {name: total - np.array(peers, total.dtype) for name, total in self.sums.vectors.items()}

    def pump(self) -> None:
        """Have the peers answer, and go on to the next leg as long as nobody else is waited for."""
        with self.turn:
            while not (self.held or self.machine.done) and OWN not in self._peers_answer():
                try:
                    self.machine.advance()
                except FedSecureError as error:
                    self.failure = error
            if self.machine.done and self.failure is None:
                self.sums = self.machine.outcome

    def _peers_answer(self) -> tuple[str, ...]:
        for node in self.machine.waiting:
            if node != OWN:
                deliver(self.machine, node, self.machine.leg, self._answer_of(node))
        return self.machine.waiting

    def _answer_of(self, node: str) -> Any:
        message = self.machine.message(node)
        assert message is not None
        return self.peers[node].answer(self.machine.leg, message)

    def leg(self) -> pb.Leg | None:
        with self.turn:
            message = None if self.machine.done else self.machine.message(OWN)
            if message is None:
                return None
            leg, work = self.machine.leg, self.work
            return pb.Leg(
                plan_digest=work.plan_digest, round=work.round, attempt=work.attempt, exchange=work.exchange,
                config_digest=self.machine.config_digest.hex(), leg=leg, message=self.mutate(leg, message),
                deadline_unix_ms=self.deadline_ms,
            )  # fmt: skip

    def abort(self, data: bytes) -> None:
        with self.turn:
            self.aborted = parse_abort(data)
            self.machine.drop(OWN, self.aborted.code.name)
            self.pump()

    def receive(self, leg: int, data: bytes) -> None:
        with self.turn:
            self.answers.append((leg, data))
            if leg in self.forgets:
                return
            self.machine.receive(OWN, leg, data)
            self.pump()

    def result(self, broadcast: str, **changes: Any) -> bytes:
        """What is announced of the sum with the exchange that broadcasts ``broadcast``."""
        assert self.sums is not None
        digests = tuple(bytes(32) for _ in self.streams)
        fields = {
            "transcript3": self.sums.transcript3, "sum_sha256": digests, "survivors": self.sums.survivors,
            "next_state_digest": bytes.fromhex(broadcast), "round": self.work.round, "purpose": self.work.exchange,
        }  # fmt: skip
        return SessionResult(**{**fields, **changes}).to_bytes()


class MaskedScript(CoordinatorServicer):
    """In front of the script of all tests: takes masked contributions, opens a session for each, relays its legs."""

    def __init__(self, script: Any) -> None:
        self.script = script
        self.cohort: Cohort | None = None
        self.sessions: list[Session] = []
        #: How a session is made once a contribution is there; ``None``: none is.
        self.make: Callable[[Any, pb.Exchange], Session | None] = lambda plan, work: Session(self.cohort, plan, work)
        self.lost_replies = self.cut_vectors = 0
        self.polled: list[tuple[str, ...]] = []
        self.before: Callable[[int], None] = lambda leg: None
        self.chunks = 0
        self._asked: dict[str, pb.Exchange] = {}
        script.schema_of = self.schema
        for call in ("Hello", "ListPlans", "Join", "Refuse", "Download", "UploadOffset"):
            setattr(self, call, getattr(script, call))

    def ask(self, plan: Any, round_: int = 0, *, result: Callable[[str], bytes] = lambda _: b"", **how: Any) -> None:
        """Ask for a contribution under the masks of the cohort, of another model in each round. ``result``: what is
        announced, of the broadcast."""
        cohort = how.pop("cohort", None)
        digest = self.cohort.digest if cohort is None else cohort
        how.setdefault("scale", 1 - round_ / 64)
        self.script.ask(plan, round_, about=lambda sent: {"cohort_digest": digest, "result": result(sent)}, **how)

    def schema(self, key: Any) -> Schema:
        plan, work = self._about(key)
        whole = build_method(plan).schema(key.exchange)
        return Schema((), whole.released) if work is not None and work.cohort_digest else whole

    def _about(self, key: Any) -> tuple[Any, pb.Exchange | None]:
        plan = next(p for p in self.script.plans if p.digest() == key.plan_digest)
        same = [
            w for w in self.script.work if (w.round, w.exchange, w.attempt) == (key.round, key.exchange, key.attempt)
        ]
        return plan, same[0] if same else None

    @property
    def session(self) -> Session | None:
        return self.sessions[-1] if self.sessions else None

    def Upload(self, request_iterator: Iterator[Any], context: Any) -> Any:
        work = self.script.work[0] if self.script.work else None
        reply = self.script.Upload(request_iterator, context)
        if work is not None and work.cohort_digest:
            plan = next(p for p in self.script.plans if p.digest() == work.plan_digest)
            if (made := self.make(plan, work)) is not None:
                self.sessions.append(made)
        return reply

    def NextWork(self, request: Any, context: Any) -> Any:
        self.polled.append(tuple(request.plan_digests))
        end = time.monotonic() + request.wait_ms / 1000
        while time.monotonic() < end:
            asked = [s for s in reversed(self.sessions) if s.work.plan_digest in request.plan_digests]
            leg = next((leg for s in asked if (leg := s.leg()) is not None), None)
            if leg is not None:
                return pb.NextWorkReply(leg=leg)
            session = self.session
            if session is None or session.machine.done or self.script.work:
                return self.script.NextWork(request, context)
            time.sleep(0.02)
        return pb.NextWorkReply(nothing=pb.Nothing())

    def AnswerLeg(self, request: Any, context: Any) -> Any:
        self.before(request.leg)
        session = self._session(request.config_digest, context)
        try:
            if request.WhichOneof("answer") == "abort":
                session.abort(request.abort)
            else:
                session.receive(request.leg, request.message)
        except FedSecureError as error:
            to_status(context, error)
        if self.lost_replies:
            self.lost_replies -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "cut before the reply")
        return pb.LegReply()

    def UploadMasked(self, request_iterator: Iterator[Any], context: Any) -> Any:
        self.before(2)
        session = self._session(next(request_iterator).header.config_digest, context)
        try:
            session.machine.begin_vectors(OWN)
            for message in request_iterator:
                if message.WhichOneof("part") == "done":
                    session.receive(2, message.done)
                    break
                self.chunks += 1
                session.machine.receive_chunk(OWN, message.chunk)
                if self.cut_vectors:
                    self.cut_vectors -= 1
                    context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
        except FedSecureError as error:
            to_status(context, error)
        return pb.LegReply()

    def _session(self, digest: str, context: Any) -> Session:
        for session in self.sessions:
            if session.machine.config_digest.hex() == digest:
                return session
        context.abort(grpc.StatusCode.NOT_FOUND, "no such session")
        raise AssertionError


@pytest.fixture
def script(script: Any) -> Any:
    """The script of all tests of the node, with sessions (``script.sums``) in front of it."""
    script.sums = MaskedScript(script)
    script.register = lambda server: add_CoordinatorServicer_to_server(script.sums, server)
    return script


@pytest.fixture
def cohort(site: Any, script: Any) -> Cohort:
    """The cohort of the node under test, pinned by it."""
    made = Cohort(site.folder)
    made.pin()
    script.sums.cohort = made
    return made


@pytest.fixture
def four(site: Any, script: Any) -> Cohort:
    """The same with a fourth node: t is 3 of them as well."""
    made = Cohort(site.folder, nodes=(*NODES, "hospital-d"))
    made.pin()
    script.sums.cohort = made
    return made


@pytest.fixture
def session_of() -> Callable[..., Session]:
    """``session_of(cohort, plan, work, number, **changes of the configuration)``."""
    return Session


@pytest.fixture
def masked_plan(plan_of: Callable[..., Any]) -> Callable[..., Any]:
    """A plan for the cohort, under masks unless it says otherwise."""

    def make(method: str = "fedavg", *, secagg: str = "required", **changes: Any) -> Any:
        cohort = {"min_nodes": 3, "nodes": list(NODES)}
        return plan_of(method, **{"secagg": secagg, "cohort": cohort, **changes})

    return make
