"""What the coordinator relays to a node, leg by leg, each message checked as far as the node can. Every fault is a
``SecAggError``."""

from __future__ import annotations

from collections.abc import Collection

from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.protocol.advertised import check_distinct, open_advertisement
from fedsecure.secagg.protocol.codec import check_nodes, fault
from fedsecure.secagg.protocol.messages import (
    CONSISTENCY,
    Advertisement,
    open_signed,
    parse_consistency,
    parse_consistency_set,
    parse_inbox,
    parse_key_list,
    parse_survivors,
)

__all__ = ["open_confirmations", "open_inbox", "open_key_list", "open_survivors"]


def open_key_list(
    data: bytes, own: bytes, manifest: CohortManifest, config_digest: bytes, cohort_digest: bytes
) -> tuple[dict[str, Advertisement], dict[str, bytes]]:
    """Leg 1, by node of U1: its keys, and their payload as it was signed. ``own``: what this node advertised, which
    must be among them. Raises BAD_TRANSCRIPT, BAD_KEY, or as ``open_advertisement``."""
    signed = parse_key_list(data)
    if own not in signed:
        raise fault("BAD_TRANSCRIPT", "the list of keys lacks what this node advertised")
    opened = [open_advertisement(each, manifest, config_digest, cohort_digest) for each in signed]
    check_nodes((found.node for found, _ in opened), "the list of keys", "BAD_KEY")
    check_distinct(found for found, _ in opened)
    return {found.node: found for found, _ in opened}, {found.node: payload for found, payload in opened}


def open_inbox(data: bytes, node: str, peers: Collection[str]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Leg 2: what each other node of U2 sealed for ``node``, by sender, and U2 in order. ``peers``: the others of U1.
    Raises BAD_SHARE, BAD_TRANSCRIPT."""
    sealed, shared = parse_inbox(data)
    _require(node, shared, "U2")
    if strangers := sorted(set(shared) - set(peers) - {node}):
        raise fault("BAD_TRANSCRIPT", f"node {strangers[0]} is in U2 but advertised no keys")
    if set(sealed) != set(shared) - {node}:
        raise fault("BAD_TRANSCRIPT", "the sealed shares are not those of the nodes of U2")
    return sealed, shared


def open_survivors(data: bytes, node: str, own_vector: bytes) -> dict[str, bytes]:
    """Leg 3: by node of U3, in order, the digest of its vectors. ``own_vector``: that of those of ``node``. Raises
    BAD_TRANSCRIPT, BAD_VECTOR."""
    vectors = parse_survivors(data)
    _require(node, vectors, "U3")
    if vectors[node] != own_vector:
        raise fault("BAD_VECTOR", "the survivors' list has another digest of this node's vectors")
    return vectors


def open_confirmations(
    data: bytes, manifest: CohortManifest, survivors: Collection[str], transcript3: bytes
) -> set[str]:
    """Leg 4: those of ``survivors`` who signed T3. Raises BAD_SIGNATURE, BAD_TRANSCRIPT for another list or node."""
    signers: set[str] = set()
    for each in parse_consistency_set(data):
        signer, payload = open_signed(each, CONSISTENCY, manifest)
        if signer in signers or signer not in survivors:
            raise fault("BAD_TRANSCRIPT", f"a confirmation of {signer}, which is no survivor or there twice")
        if parse_consistency(payload) != transcript3:
            raise fault("BAD_TRANSCRIPT", f"{signer} confirmed another list of survivors")
        signers.add(signer)
    return signers


def _require(node: str, nodes: Collection[str], name: str) -> None:
    if node not in nodes:
        raise fault("BAD_TRANSCRIPT", f"the list {name} lacks this node, which is to answer it")
