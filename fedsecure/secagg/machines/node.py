"""A node's side of one session, sans IO: bytes in, bytes out, and one way through.

==========  ===============================  ==========  ==============================================================
state       call (leg), message              next state  refuses with
==========  ===============================  ==========  ==============================================================
IDLE        advertise (0), SessionConfig     ADVERTISED  BAD_CONFIG, BAD_COHORT, REPLAYED, ALREADY_RELEASED
ADVERTISED  share (1), KeyList               SHARED      BAD_SIGNATURE, BAD_KEY, BAD_TRANSCRIPT, TOO_FEW_NODES
SHARED      mask (2), Inbox                  UPLOADED    BAD_SHARE, BAD_TRANSCRIPT, TOO_FEW_NODES
UPLOADED    confirm (3), Survivors           CONFIRMED   BAD_TRANSCRIPT, BAD_VECTOR, TOO_FEW_NODES, ALREADY_RELEASED
CONFIRMED   unmask (4), ConsistencySet       RELEASED    BAD_SIGNATURE, BAD_TRANSCRIPT, TOO_FEW_NODES, ALREADY_RELEASED
RELEASED    any                              RELEASED    ALREADY_RELEASED
ABORTED     any                              ABORTED     BAD_TRANSCRIPT
==========  ===============================  ==========  ==============================================================

Any other call in a state is BAD_TRANSCRIPT, any call after the deadline DEADLINE. A refusal, whatever its cause, ends
in ABORTED, which nothing leaves. Secrets are overwritten in RELEASED and ABORTED; the private keys and the seed already
in UPLOADED. There is no way back: a new attempt is a new object with new keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

from fedsecure.crypto.signatures import SigningIdentity
from fedsecure.errors import CertificateError, SecAggError
from fedsecure.secagg.machines.due import SessionDue, check_due, check_own
from fedsecure.secagg.machines.memory import SessionMemory, among_others
from fedsecure.secagg.machines.nodekeys import NodeKeys
from fedsecure.secagg.machines.relayed import open_confirmations, open_inbox, open_key_list, open_survivors
from fedsecure.secagg.machines.vectors import Masked, masked_copies
from fedsecure.secagg.protocol.codec import fault
from fedsecure.secagg.protocol.messages import (
    ADVERTISE,
    CONSISTENCY,
    MASKED_DONE,
    Advertisement,
    SessionConfig,
    consistency,
    encrypted_shares,
    masked_done,
    sign,
    unmask_shares,
)
from fedsecure.secagg.protocol.transcript import config_digest, keys_transcript, survivors_transcript, vector_digest
from fedsecure.tensors import Array
from fedsecure.text import counted

__all__ = ["NodeState", "SecAggNode", "SessionDue"]


class NodeState(Enum):
    """Where a node is in a session."""

    IDLE = "idle"
    ADVERTISED = "advertised"
    SHARED = "shared"
    UPLOADED = "uploaded"
    CONFIRMED = "confirmed"
    RELEASED = "released"
    ABORTED = "aborted"


class SecAggNode:
    """One session of one node; not thread-safe. Every answering call returns the bytes to send, or raises
    ``SecAggError`` "CODE: …" and has then ended the session: send ``abort_bytes(error, node.transcript)``.

    A call is answered once. Whoever may have to send an answer again, because the connection broke, keeps its bytes.
    """

    def __init__(
        self,
        due: SessionDue,
        identity: SigningIdentity,
        vectors: Mapping[str, Array],
        memory: SessionMemory,
        *,
        now_ms: Callable[[], int],
        threads: int = 1,
    ) -> None:
        """``vectors``: stream name -> this node's vector on the ring (length,), left as it is. ``now_ms``: Unix time.
        ``threads`` share the masking. Raises ``LocalProtocolError`` when a vector is not that of its stream, or
        ``identity`` is not the node's in the manifest."""
        check_own(due, identity, vectors)
        self._due, self._identity, self._memory = due, identity, memory
        self._vectors = dict(vectors)
        self._now_ms, self._threads = now_ms, threads
        self._keys: NodeKeys | None = None
        self._config: SessionConfig | None = None
        self._config_digest = self._advertised = self._own_vector = b""
        self._peers: dict[str, Advertisement] = {}
        self._shared: tuple[str, ...] = ()
        self._survivors: tuple[str, ...] = ()
        self._transcript1 = self._transcript3 = b""
        self._state = NodeState.IDLE

    @property
    def state(self) -> NodeState:
        """Where the session is."""
        return self._state

    @property
    def config(self) -> SessionConfig | None:
        """The configuration, once ``advertise`` accepted it."""
        return self._config

    @property
    def transcript1(self) -> bytes:
        """T1, from ``share`` on; empty before."""
        return self._transcript1

    @property
    def transcript3(self) -> bytes:
        """T3, from ``confirm`` on; empty before."""
        return self._transcript3

    @property
    def transcript(self) -> bytes:
        """T3 or T1, as far as there is one: what an abort names."""
        return self._transcript3 or self._transcript1

    @property
    def survivors(self) -> tuple[str, ...]:
        """U3 in order, from ``confirm`` on; empty before."""
        return self._survivors

    def answer(self, leg: int, message: bytes) -> bytes | Masked:
        """The answer to ``message`` of ``leg`` (0 to 4): of ``advertise``, ``share``, ``mask``, ``confirm`` and
        ``unmask`` in turn."""
        calls: tuple[Callable[[bytes], bytes | Masked], ...]
        calls = self.advertise, self.share, self.mask, self.confirm, self.unmask
        if not 0 <= leg < len(calls):
            self.wipe()
            raise fault("BAD_TRANSCRIPT", f"leg {leg} (allowed: 0..{len(calls) - 1})")
        return calls[leg](message)

    def advertise(self, config: bytes) -> bytes:
        """Leg 0: fresh keys for the session that ``config`` describes; returns ``Signed{Advertise}``."""
        with self._step(NodeState.IDLE, NodeState.ADVERTISED):
            due = self._due
            self._config = check_due(due, config, self._now_ms())
            try:
                due.manifest.require_signed()
            except CertificateError as error:
                raise SecAggError(f"BAD_COHORT: {error}", hint=error.hint) from None
            self._memory.begin(due.experiment, due.purpose, due.round)
            self._keys = NodeKeys(due.node, due.manifest)
            self._config_digest = config_digest(config)
            payload = self._keys.advertise(self._config_digest, self._config.cohort_digest).to_bytes()
            self._advertised = self._sign(ADVERTISE, payload)
        return self._advertised

    def share(self, key_list: bytes) -> bytes:
        """Leg 1: seals shares of both secrets for every peer of U1; returns ``EncryptedShares``."""
        with self._step(NodeState.ADVERTISED, NodeState.SHARED):
            due, cohort = self._due, self._settled().cohort_digest
            keys, payloads = open_key_list(key_list, self._advertised, due.manifest, self._config_digest, cohort)
            self._require(len(keys), "advertised keys", least=self._settled().min_survivors)
            self._transcript1 = keys_transcript(self._config_digest, cohort, payloads)
            self._peers = {node: found for node, found in keys.items() if node != due.node}
            sealed = self._secrets().seal(self._transcript1, self._peers)
        return encrypted_shares(self._transcript1, sealed)

    def mask(self, inbox: bytes) -> Masked:
        """Leg 2: opens the shares of U2 and masks the vectors, on copies; returns what is uploaded."""
        with self._step(NodeState.SHARED, NodeState.UPLOADED):
            sealed, shared = open_inbox(inbox, self._due.node, self._peers)
            self._require(len(shared), "shared", least=self._settled().min_survivors)
            peers = {node: self._peers[node] for node in sealed}
            self._secrets().open(self._transcript1, peers, sealed)
            masked = self._masked(peers)
            self._secrets().wipe_own()
            self._vectors.clear()
            self._shared = shared
        return masked

    def confirm(self, survivors: bytes) -> bytes:
        """Leg 3: the one list of survivors that this node will help to unmask; returns ``Signed{Consistency}``."""
        with self._step(NodeState.UPLOADED, NodeState.CONFIRMED):
            vectors = open_survivors(survivors, self._due.node, self._own_vector)
            self._require(len(vectors), "uploaded", least=self._settled().min_survivors)
            self._require_same(tuple(vectors))
            self._transcript3 = survivors_transcript(self._transcript1, self._shared, vectors)
            self._survivors = tuple(vectors)
        return self._sign(CONSISTENCY, consistency(self._transcript3))

    def unmask(self, consistency_set: bytes) -> bytes:
        """Leg 4: after at least t survivors signed the same list, one share of every node of U2; returns
        ``UnmaskShares``. That it does so is in the memory, durably, before this returns."""
        with self._step(NodeState.CONFIRMED, NodeState.RELEASED):
            due = self._due
            signers = open_confirmations(consistency_set, due.manifest, self._survivors, self._transcript3)
            self._require(len(signers), "confirmed the survivors")
            triple = due.experiment, due.purpose, due.round
            self._memory.release(*triple, self._transcript3, due.model, self._survivors)
            dropped = [node for node in self._shared if node not in self._survivors]
            shares = self._secrets().shares(self._survivors, dropped)
        self._forget()
        return unmask_shares(self._transcript3, shares)

    def expire(self) -> bool:
        """Whether the deadline has passed; secrets are then overwritten. To be called now and then by who waits."""
        if self._config is None or self._now_ms() < self._config.deadline_ms:
            return False
        self.wipe()
        return True

    def wipe(self) -> None:
        """End the session here: secrets are overwritten and nothing is answered any more. May be called again."""
        self._forget()
        if self._state is not NodeState.RELEASED:
            self._state = NodeState.ABORTED

    def __repr__(self) -> str:
        due = self._due
        return f"SecAggNode({due.node}, {due.purpose} of round {due.round + 1}, {self._state.value})"

    @contextmanager
    def _step(self, state: NodeState, following: NodeState) -> Iterator[None]:
        """Go from ``state`` to ``following``, or end the session for good."""
        try:
            self._require_state(state)
            yield
        except BaseException:
            self.wipe()
            raise
        self._state = following

    def _require_state(self, state: NodeState) -> None:
        if self._state is NodeState.RELEASED:
            raise fault("ALREADY_RELEASED", "this session's sum was unmasked; it answers nothing more")
        if self.expire():
            raise SecAggError("DEADLINE: the session's deadline has passed", hint="the next attempt has new keys")
        if self._state is not state:
            raise fault("BAD_TRANSCRIPT", f"a message for {state.value} nodes, but this one is {self._state.value}")

    def _forget(self) -> None:
        if self._keys is not None:
            self._keys.wipe()
        self._vectors.clear()

    def _masked(self, peers: Mapping[str, Advertisement]) -> Masked:
        """What is uploaded: copies of the vectors with all masks on, and their digests."""
        config = self._settled()
        masks = self._secrets().masks(self._transcript1, peers, config.streams)
        copies, digests = masked_copies(self._vectors, config.streams, masks, config.prg, threads=self._threads)
        self._own_vector = vector_digest(digests)
        done = self._sign(MASKED_DONE, masked_done(self._transcript1, digests))
        return Masked(self._transcript1, copies, digests, done)

    def _sign(self, label: str, payload: bytes) -> bytes:
        return sign(self._identity, label, payload, signer=self._due.node)

    def _require(self, found: int, what: str, *, least: int = 0) -> None:
        least = max(least, self._due.manifest.threshold.required)
        if found < least:
            raise SecAggError(
                f"TOO_FEW_NODES: {counted(found, 'node')} {what} where {least} are needed",
                hint="nothing was revealed; the next attempt has new keys",
            )

    def _require_same(self, survivors: tuple[str, ...]) -> None:
        due = self._due
        if self._memory.survivors(due.experiment, due.purpose, due.model) not in (None, survivors):
            raise among_others(due.purpose, due.round)

    def _secrets(self) -> NodeKeys:
        assert self._keys is not None, "from ADVERTISED on"
        return self._keys

    def _settled(self) -> SessionConfig:
        assert self._config is not None, "from ADVERTISED on"
        return self._config
