"""Transcripts of a session: digests that bind what every node saw, so that no two nodes can be shown different things.

H is ``fedsecure.crypto.transcripts.transcript_hash``, LP ``length_prefixed``. Node ids are ordered by their bytes.

    config digest = H("config", SessionConfig bytes)
    T1            = H("u1", config digest, cohort digest, Advertise payload of every node of U1 in order)
    node's vector = H("vector", SHA-256 of every stream in order)
    T3            = H("u3", T1, LP(U2), LP(U3), LP(vector digests of U3 in order))

T1 holds every fresh key, so it names the session; T3 names the one sum that is unmasked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedsecure.crypto.framing import length_prefixed
from fedsecure.crypto.transcripts import DIGEST_BYTES, transcript_hash
from fedsecure.errors import SecAggError

__all__ = ["config_digest", "keys_transcript", "survivors_transcript", "vector_digest"]


def config_digest(config: bytes) -> bytes:
    """The digest of the session's configuration: the bytes as they came, before they are parsed."""
    return transcript_hash("config", config)


def keys_transcript(config: bytes, cohort: bytes, advertised: Mapping[str, bytes]) -> bytes:
    """T1 from the digests of configuration and cohort and each node's signed ``Advertise`` payload, by node id.

    The caller has checked that each payload names the node it stands under and is signed by it. Raises
    ``SecAggError`` for a digest of another length, or no node.
    """
    _check_digests(config=config, cohort=cohort)
    if not advertised:
        raise SecAggError("BAD_TRANSCRIPT: no node advertised keys")
    return transcript_hash("u1", config, cohort, *(advertised[node] for node in _ordered(advertised)))


def vector_digest(streams: Sequence[bytes]) -> bytes:
    """One digest of a node's masked vectors, from the SHA-256 of each stream's bytes in the session's order."""
    _check_digests(**{f"stream {index}": digest for index, digest in enumerate(streams)})
    return transcript_hash("vector", *streams)


def survivors_transcript(keys: bytes, shared: Iterable[str], vectors: Mapping[str, bytes]) -> bytes:
    """T3 from T1, the nodes that shared (U2), and the ``vector_digest`` of each node that uploaded (U3).

    Raises ``SecAggError`` for a digest of another length, a node twice, or a survivor that did not share.
    """
    u2 = list(shared)
    _check_digests(T1=keys, **{f"vector of {node}": digest for node, digest in vectors.items()})
    if len(set(u2)) != len(u2):
        raise SecAggError("BAD_TRANSCRIPT: a node is named twice among those that shared")
    if strangers := _ordered(set(vectors) - set(u2)):
        raise SecAggError(f"BAD_TRANSCRIPT: node {strangers[0][:63]} uploaded but never shared")
    if not vectors:
        raise SecAggError("BAD_TRANSCRIPT: no node uploaded")
    u3 = _ordered(vectors)
    return transcript_hash(
        "u3",
        keys,
        length_prefixed(*(node.encode() for node in _ordered(u2))),
        length_prefixed(*(node.encode() for node in u3)),
        length_prefixed(*(vectors[node] for node in u3)),
    )


def _ordered(nodes: Iterable[str]) -> list[str]:
    return sorted(nodes, key=str.encode)


def _check_digests(**digests: bytes) -> None:
    for what, digest in digests.items():
        if len(digest) != DIGEST_BYTES:
            raise SecAggError(
                f"BAD_TRANSCRIPT: the digest of the {what[:80]} has {len(digest)} bytes where {DIGEST_BYTES} are due"
            )
