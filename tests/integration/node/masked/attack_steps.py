"""What a malicious coordinator with colluding nodes does to the node daemon: it changes a message, or asks for a leg
that is not due. Peers' identity keys are the attacker's here."""

from __future__ import annotations

from fedsecure.crypto.signatures import ephemeral_identity
from fedsecure.secagg.protocol.messages import CONSISTENCY, consistency, sign
from fedsecure.secagg.protocol.transcript import config_digest
from fedsecure.secagg.v1 import secagg_pb2 as spb
from fedsecure.wire.v1 import coordinator_pb2 as pb

READY = ["release", "sending", "acknowledged"]
B, C = "hospital-b", "hospital-c"


def kinds(site):
    return [r.kind for r in site.records()]


def summed_once(site, script, plan):
    """The plan's first round, masked and summed; returns the running node and the session."""
    script.offer(plan)
    script.sums.ask(plan)
    node = site.start()
    session = node.until(lambda: script.sums.session and script.sums.session.sums and script.sums.session)
    return node, session


def show(session, plan, leg, message):
    """From now on the coordinator asks for this leg, whatever came before."""
    work = session.work
    about = {"plan_digest": plan.digest(), "round": work.round, "attempt": work.attempt, "exchange": work.exchange}
    digest = config_digest(message).hex() if leg == 0 else session.machine.config_digest.hex()
    asked = pb.Leg(**about, config_digest=digest, leg=leg, message=message, deadline_unix_ms=session.deadline_ms)
    session.leg = lambda: None if session.aborted else asked


# one message of a session is changed


def parsed(kind, message):
    return kind.FromString(message)


def swapped_key(cohort, message):
    found = parsed(spb.KeyList, message)
    found.advertise[1].CopyFrom(spb.Signed.FromString(resigned(ephemeral_identity(), found.advertise[1].payload, B)))
    return found


def colluders_key(cohort, message):
    """hospital-c signs keys in the name of hospital-b."""
    found = parsed(spb.KeyList, message)
    payload = spb.Advertise.FromString(found.advertise[1].payload)
    payload.mask_pk = bytes([9]) + bytes(31)
    signed = resigned(cohort.identities[C], payload.SerializeToString(deterministic=True), C)
    found.advertise[1].CopyFrom(spb.Signed.FromString(signed))
    return found


def key_of_another_model(cohort, message):
    """hospital-b advertised for another configuration: there the coordinator named another model."""
    found = parsed(spb.KeyList, message)
    payload = spb.Advertise.FromString(found.advertise[1].payload)
    payload.config_digest = bytes(32)
    signed = resigned(cohort.identities[B], payload.SerializeToString(deterministic=True), B)
    found.advertise[1].CopyFrom(spb.Signed.FromString(signed))
    return found


def copied_key(cohort, message):
    found = parsed(spb.KeyList, message)
    payload = spb.Advertise.FromString(found.advertise[1].payload)
    payload.share_pk = spb.Advertise.FromString(found.advertise[2].payload).share_pk
    signed = resigned(cohort.identities[B], payload.SerializeToString(deterministic=True), B)
    found.advertise[1].CopyFrom(spb.Signed.FromString(signed))
    return found


def two_keys(cohort, message):
    found = parsed(spb.KeyList, message)
    del found.advertise[2]
    return found


def resigned(identity, payload, signer):
    return sign(identity, "advertise", payload, signer=signer)


def two_sharers(cohort, message):
    found = parsed(spb.Inbox, message)
    del found.u2[2]
    del getattr(found, "in")[1]
    return found


def changed_share(cohort, message):
    found = parsed(spb.Inbox, message)
    item = getattr(found, "in")[0]
    item.ct = item.ct[:-1] + bytes([item.ct[-1] ^ 1])
    return found


def two_survivors(cohort, message):
    found = parsed(spb.Survivors, message)
    del found.u3[2], found.vector_digests[2]
    return found


def another_vector(cohort, message):
    found = parsed(spb.Survivors, message)
    found.vector_digests[0] = bytes(32)
    return found


def two_confirmations(cohort, message):
    found = parsed(spb.ConsistencySet, message)
    del found.consistency[2]
    return found


def forged_confirmation(cohort, message):
    found = parsed(spb.ConsistencySet, message)
    found.consistency[1].signature = bytes(64)
    return found


def confirmations_of_another_list(cohort, message):
    """The colluders signed another list than the one that this node was shown."""
    found = parsed(spb.ConsistencySet, message)
    for place, node in ((1, B), (2, C)):
        other = sign(cohort.identities[node], CONSISTENCY, consistency(bytes(32)), signer=node)
        found.consistency[place].CopyFrom(spb.Signed.FromString(other))
    return found
