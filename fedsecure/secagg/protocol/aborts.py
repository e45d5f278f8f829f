"""Why a session ends without a sum: one code of a fixed set, with fixed words, in nothing of which data shows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum

from fedsecure.errors import SecAggError
from fedsecure.secagg.protocol.codec import check_node, decode, fault
from fedsecure.secagg.v1 import secagg_pb2 as pb

__all__ = ["MAX_ABORT_BYTES", "Abort", "AbortCode", "abort_bytes", "code_of", "parse_abort"]

MAX_ABORT_BYTES = 512


class AbortCode(IntEnum):
    """The codes, by their numbers on the wire. A ``SecAggError`` begins with the name of its code."""

    UNSPECIFIED = 0
    BAD_CONFIG = 1
    BAD_COHORT = 2
    BAD_SIGNATURE = 3
    BAD_KEY = 4
    BAD_SHARE = 5
    BAD_VECTOR = 6
    BAD_TRANSCRIPT = 7
    TOO_FEW_NODES = 8
    REPLAYED = 9
    ALREADY_RELEASED = 10
    DEADLINE = 11
    BAD_SUM = 12
    WITHDRAWN = 13


#: What travels beside each code.
_WORDS = {
    AbortCode.UNSPECIFIED: "the session ended at this node",
    AbortCode.BAD_CONFIG: "the session's configuration is not what is due",
    AbortCode.BAD_COHORT: "the cohort is not the one that is pinned",
    AbortCode.BAD_SIGNATURE: "a signature is not by the node that it names",
    AbortCode.BAD_KEY: "a key is malformed, weak or there twice",
    AbortCode.BAD_SHARE: "shares do not open, or do not give the secret that was advertised",
    AbortCode.BAD_VECTOR: "a masked vector is not what is due",
    AbortCode.BAD_TRANSCRIPT: "a message does not fit what went before; the node may have started again",
    AbortCode.TOO_FEW_NODES: "fewer nodes are left than must be there to the end",
    AbortCode.REPLAYED: "the round is older than one that was begun, or was tried too often",
    AbortCode.ALREADY_RELEASED: "this sum, or one of the same model over other nodes, was unmasked before",
    AbortCode.DEADLINE: "the session's deadline has passed",
    AbortCode.BAD_SUM: "the sum lies outside what its contributors can give",
    AbortCode.WITHDRAWN: "the institution does not allow the run any more",
}
#: Names that parts of ``fedsecure.crypto`` use for what is one of the codes.
_SYNONYMS = {"TOO_FEW_SHARES": AbortCode.TOO_FEW_NODES}


@dataclass(frozen=True, slots=True)
class Abort:
    """A node's word that it left a session. ``transcript``: T3, T1 or empty, as far as there was one. ``peer``: whose
    sealed shares it says it cannot open, or empty."""

    code: AbortCode
    transcript: bytes
    detail: str
    peer: str = ""

    def reason(self, node: str, nodes: Collection[str]) -> str:
        """In words, of the node that sent it to whom it is a session of ``nodes``. Of two of them one is at fault for
        shares that do not open, and nobody else can tell which."""
        if self.code is AbortCode.BAD_SHARE and self.peer in nodes and self.peer != node:
            return (
                f"{self.code.name}: the shares from {self.peer} to {node} cannot be opened by {node}: {self.peer} or "
                f"{node} is at fault"
            )
        return f"{self.code.name}: {self.detail}"


def code_of(error: BaseException) -> AbortCode:
    """The code that the message of ``error`` begins with; UNSPECIFIED when it begins with none."""
    name = str(error).partition(":")[0] if isinstance(error, SecAggError) else ""
    return _SYNONYMS.get(name) or AbortCode.__members__.get(name, AbortCode.UNSPECIFIED)


def abort_bytes(error: BaseException, transcript: bytes = b"") -> bytes:
    """The ``Abort`` message for ``error``: its code, that code's fixed words, none of the error's own, and the name of
    the node whose shares did not open, if that is why."""
    code = code_of(error)
    peer = error.peer if isinstance(error, SecAggError) and code is AbortCode.BAD_SHARE else ""
    message = pb.Abort(transcript=transcript, code=f"ABORT_CODE_{code.name}", detail=_WORDS[code], peer=peer)
    return message.SerializeToString()


def parse_abort(data: bytes) -> Abort:
    """Read an ``Abort``. Its words are ours for its code, whatever came. Raises ``SecAggError`` BAD_TRANSCRIPT."""
    message = decode(pb.Abort, data, MAX_ABORT_BYTES, "BAD_TRANSCRIPT")
    if len(message.transcript) not in {0, 32}:
        raise fault("BAD_TRANSCRIPT", f"an abort's transcript has {len(message.transcript)} bytes (allowed: 0, 32)")
    code = AbortCode(message.code) if message.code in AbortCode._value2member_map_ else AbortCode.UNSPECIFIED
    peer = check_node(message.peer, "an abort", "BAD_TRANSCRIPT") if message.peer else ""
    return Abort(code, message.transcript, _WORDS[code], peer)
