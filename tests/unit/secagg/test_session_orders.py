"""Whatever order a malicious coordinator and colluding nodes choose, no vector is revealed and nothing is wedged.

Hypothesis opens sessions side by side, sends nodes the next message of any of them, stale ones, changed ones, with
nodes left out at will, restarts nodes, and lets deadlines pass. At every answer the rules of release are checked, and
at the end everything that can be computed from all of it together.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from adversary import Lab, Relay
from adversary_knowledge import Knowledge
from adversary_puppet import Handed, Puppet, read_keys, read_survivors
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from fedsecure.crypto.transcripts import check_signature, transcript_hash
from fedsecure.errors import SecAggError
from fedsecure.secagg.protocol.transcript import vector_digest
from fedsecure.secagg.v1 import secagg_pb2 as pb

#: Of the bits that say who is left out of a list: signatures over other lists are in the set, too.
MIXED = 64
Life = dict[int, tuple[bytes, Any]]  # leg -> what one machine was sent and answered


@dataclass
class Open:
    """A session: one machine of every honest node, and the colluders in it."""

    config: bytes
    machines: dict[str, Any]
    puppets: dict[str, Puppet]
    advertised: dict[str, bytes]
    lives: dict[str, Life]
    deals: dict[tuple[str, bytes], bytes] = field(default_factory=dict)


def listed(signed):
    return pb.KeyList(advertise=[pb.Signed.FromString(signed[n]) for n in sorted(signed)]).SerializeToString()


class Coordinator(RuleBasedStateMachine):
    """The malicious coordinator; its bits choose who is left out of a list."""

    @initialize(nodes=st.integers(3, 6), fewer=st.integers(0, 3))
    def begin(self, nodes, fewer):
        self.lab = Lab(nodes)
        self.count = max(self.lab.manifest.threshold.colluders - fewer, 0)
        self.honest = self.lab.names[: nodes - self.count]
        self.sessions: list[Open] = []
        self.old: list[tuple[Open, str, Life]] = []
        self.messages: list[tuple[int, bytes]] = []
        self.releases: dict[str, list[bytes]] = {n: [] for n in self.honest}
        self.open()

    def open(self):
        config = self.lab.config(attempt=len(self.sessions), deadline_unix_ms=self.lab.now + 60_000)
        puppets = {n: self.lab.puppet(n) for n in self.lab.names[len(self.honest) :]}
        advertised = {n: p.advertise(config) for n, p in puppets.items()}
        machines = {n: self.lab.node(n) for n in self.honest}
        self.sessions.append(Open(config, machines, puppets, advertised, {n: {} for n in self.honest}))

    @rule()
    def another_session(self):
        if len(self.sessions) < 4:
            self.open()

    # what is sent

    @rule(which=st.integers(0, 3), legs=st.integers(1, 5))
    def carry_on(self, which, legs):
        """The genuine next messages to every honest node of a session."""
        for _ in range(legs):
            self.leg_to_all(self.sessions[which % len(self.sessions)], {})

    @rule(
        which=st.integers(-1, 3),
        before=st.integers(0, 4),
        group=st.integers(1, 63),
        left_out=st.one_of(st.sampled_from([1, 2, 4, 8]), st.integers(0, 127)),
        after=st.integers(0, 4),
        then=st.sampled_from([0, MIXED]),
    )
    def two_lists(self, which, before, group, left_out, after, then):
        """One leg with another list for some of the nodes than for the others, ``before`` genuine ones and with
        ``after`` more; signatures are then of those who saw the same list, or of everybody."""
        if which < 0:
            self.another_session()
        session = self.sessions[which % len(self.sessions)]
        some = {n for i, n in enumerate(self.honest) if group >> i & 1}
        for _ in range(before):
            self.leg_to_all(session, {})
        self.leg_to_all(session, dict.fromkeys(some, left_out))
        for _ in range(after):
            self.leg_to_all(session, dict.fromkeys(self.honest, then))

    def leg_to_all(self, session, left_out):
        composed = {n: self.compose(session, n, session.lives[n], left_out.get(n, 0)) for n in self.honest}
        for node, (leg, message) in composed.items():
            if session.machines[node].state.name not in {"ABORTED", "RELEASED"}:
                self.send(session, node, leg, message)

    @rule(which=st.integers(0, 3), who=st.integers(0, 5), left_out=st.integers(0, 127))
    def step(self, which, who, left_out):
        """The next message to one node, with some nodes left out of its list."""
        session, node = self.pick(which, who)
        self.send(session, node, *self.compose(session, node, session.lives[node], left_out))

    @rule(which=st.integers(0, 3), who=st.integers(0, 5), past=st.integers(0, 500), how=st.integers(0, 2000))
    def disturb(self, which, who, past, how):
        """A message that was sent before to anybody, with a bit of it changed, or as another leg's; a restart, or a
        deadline passed."""
        session, node = self.pick(which, who)
        if how < 600:
            self.restart(session, node)
        elif how < 700:
            self.lab.now += 61_000
        elif self.messages:
            leg, message = self.messages[past % len(self.messages)]
            if how > 1500 and message:
                changed = bytearray(message)
                changed[how % len(message)] ^= 1 << how % 8
                message = bytes(changed)
            self.send(session, node, past % 5 if how > 1800 else leg, message)

    def restart(self, session, node):
        self.old.append((session, node, session.lives[node]))
        session.machines[node], session.lives[node] = self.lab.node(node), {}
        session.advertised.pop(node, None)

    def pick(self, which, who):
        return self.sessions[which % len(self.sessions)], self.honest[who % len(self.honest)]

    def compose(self, session, node, life, left_out):
        """The leg that is due and its message, as far as what came so far allows one."""
        leg = max(life, default=-1) + 1
        gone = {n for i, n in enumerate(self.lab.names) if left_out >> i & 1}
        mixed = bool(left_out & MIXED)
        if leg == 0 or leg > 4:
            return min(leg, 4), session.config
        if leg == 1:
            return leg, listed({n: a for n, a in session.advertised.items() if n not in gone})
        if leg == 4:
            return leg, self.consistency(session, life, gone, mixed)
        return leg, self.inbox(session, node, life, gone) if leg == 2 else self.survivors(session, life, gone)

    def peers(self, session, life, leg):
        """The honest nodes that were shown the same keys and answered ``leg``."""
        return {n: o for n, o in session.lives.items() if leg in o and o[1][0] == life[1][0]}

    def inbox(self, session, node, life, gone):
        u1, _ = read_keys(session.config, self.lab.manifest.digest, life[1][0])
        sealed = {n: o[1][1] for n, o in self.peers(session, life, 1).items()}
        sealed |= {n: self.deal(session, n, life[1][0]) for n in session.puppets if n in u1}
        message = pb.Inbox(u2=sorted(set(sealed) - gone))
        for sender in message.u2:
            for item in pb.EncryptedShares.FromString(sealed[sender]).ct:
                if item.to == node:
                    getattr(message, "in").add(**{"from": sender, "ct": item.ct})
        return message.SerializeToString()

    def deal(self, session, name, key_list):
        if (name, key_list) not in session.deals:
            session.deals[name, key_list] = copy.copy(session.puppets[name]).deal(key_list)
        return session.deals[name, key_list]

    def survivors(self, session, life, gone):
        u2 = set(pb.Inbox.FromString(life[2][0]).u2)
        vectors = {n: vector_digest(o[2][1].stream_sha256) for n, o in self.peers(session, life, 2).items()}
        vectors |= {n: transcript_hash("vector", n.encode()) for n in session.puppets}
        u3 = sorted(set(vectors) & u2 - gone)
        return pb.Survivors(u3=u3, vector_digests=[vectors[n] for n in u3]).SerializeToString()

    def consistency(self, session, life, gone, mixed):
        mine = self.transcript3(session, life)
        u3 = set(pb.Survivors.FromString(life[3][0]).u3)
        found = {n: o[3][1] for n, o in self.peers(session, life, 3).items() if n not in gone}
        found = {n: s for n, s in found.items() if mixed or self.transcript3(session, session.lives[n]) == mine}
        found |= {n: p.sign_t3(mine) for n, p in session.puppets.items() if n in u3 - gone}
        return pb.ConsistencySet(
            consistency=[pb.Signed.FromString(found[n]) for n in sorted(found)]
        ).SerializeToString()

    def transcript3(self, session, life):
        _, t1 = read_keys(session.config, self.lab.manifest.digest, life[1][0])
        return read_survivors(t1, pb.Inbox.FromString(life[2][0]).u2, life[3][0])

    # what a node may answer

    def send(self, session, node, leg, message):
        self.messages.append((leg, message))
        machine, life = session.machines[node], session.lives[node]
        before = machine.state.name
        refusal = ""
        try:
            answer = machine.answer(leg, message)
        except SecAggError as error:
            refusal = str(error)
        if refusal:
            assert refusal.partition(":")[0].isupper()
            assert machine.state.name == ("RELEASED" if before == "RELEASED" else "ABORTED")
            return
        assert leg == max(life, default=-1) + 1, "each leg once, in order"
        if leg == 0:
            session.advertised[node] = answer
        if leg == 2:
            answer = Handed(list(answer.chunks()), answer.done, answer.stream_sha256)
        life[leg] = message, answer
        if leg == 4:
            self.check_release(session, node, life)

    def check_release(self, session, node, life):
        self.releases[node].append(life[4][1])
        assert len(self.releases[node]) == 1, "a sum of one contribution once, in all sessions and restarts"
        t3, u2 = self.transcript3(session, life), set(pb.Inbox.FromString(life[2][0]).u2)
        u3 = set(pb.Survivors.FromString(life[3][0]).u3)
        signers = set()
        for signed in pb.ConsistencySet.FromString(life[4][0]).consistency:
            key = self.lab.manifest.member(signed.signer).public_bytes
            check_signature(key, "consistency", signed.payload, signed.signature, signed.signer)
            assert pb.Consistency.FromString(signed.payload).transcript3 == t3
            signers.add(signed.signer)
        assert len(signers & u3) >= self.lab.threshold
        assert len(u3) >= self.lab.threshold
        items = pb.UnmaskShares.FromString(life[4][1]).item
        given = sorted((item.owner, item.WhichOneof("value")) for item in items)
        assert given == sorted((n, "self_seed" if n in u3 else "mask_sk") for n in u2)

    # what it all comes to

    def teardown(self):
        if not hasattr(self, "lab"):
            return
        sums = self.learned()
        assert len(sums) <= 1
        assert all(len(s) >= self.lab.threshold - self.count for s in sums)
        self.check_not_wedged()

    def learned(self):
        """From all sessions and all lives, those that saw the same keys together."""
        views: dict[tuple[bytes, bytes], tuple[Open, Relay]] = {}
        lives = self.old + [(s, n, life) for s in self.sessions for n, life in s.lives.items()]
        for session, node, life in lives:
            if 1 in life:
                fresh = (session, Relay(self.lab, session.config, {}))
                _, relay = views.setdefault((session.config, life[1][0]), fresh)
                relay.sent[node] = {leg: message for leg, (message, _) in life.items()}
                relay.got[node] = {leg: answer for leg, (_, answer) in life.items()}
        sums = set()
        for (config, key_list), (session, relay) in views.items():
            puppets = [copy.copy(p) for p in session.puppets.values()]
            for puppet in puppets:
                puppet.held = {}
                puppet.u1, puppet.t1 = read_keys(config, self.lab.manifest.digest, key_list)
            sums |= Knowledge(relay, puppets).learned_sums()
        return sums

    def check_not_wedged(self):
        """Those who released refuse this round; when nobody did it completes, and the next round, from another model,
        does anyway."""
        again = Relay(self.lab, self.lab.config(attempt=99), {n: self.lab.node(n) for n in self.lab.names})
        for node in self.honest:
            if self.releases[node]:
                with pytest.raises(SecAggError, match="^ALREADY_RELEASED: "):
                    again.ask(node, 0, again.config)
        everybody = {frozenset(self.lab.names)}
        if not any(self.releases.values()):
            assert Knowledge(again.run()).learned_sums() == everybody
        model = bytes([2]) * 32
        nodes = {n: self.lab.node(n, round=2, state_digest=model) for n in self.lab.names}
        following = Relay(self.lab, self.lab.config(round=2, global_state_digest=model), nodes).run()
        assert Knowledge(following).learned_sums() == everybody


SETTINGS = settings(
    max_examples=45,
    stateful_step_count=16,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_any_order_of_messages():
    run_state_machine_as_test(Coordinator, settings=SETTINGS)
