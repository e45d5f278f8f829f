"""Reading the messages of secure aggregation strictly: size first, then bytes, then every field by name.

A message is refused when it is larger than it can be, malformed, or holds a field twice or one that its type has not:
what is left has one meaning for whoever reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from fedsecure.config import NODE_ID
from fedsecure.crypto.transcripts import DIGEST_BYTES
from fedsecure.errors import SecAggError
from fedsecure.secagg.cohort.threshold import MAX_NODES

__all__ = ["PURPOSE", "check_digest", "check_node", "check_nodes", "check_purpose", "decode", "fault"]

M = TypeVar("M", bound=Message)
_NODE_ID = re.compile(NODE_ID)
#: What a session may be for: the name of an exchange.
PURPOSE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


def fault(code: str, what: str) -> SecAggError:
    """``CODE: what``, of a message from the other side."""
    return SecAggError(f"{code}: {what}", hint="node and coordinator may run different versions, or one is hostile")


def decode(kind: type[M], data: bytes, most: int, code: str) -> M:
    """The message of type ``kind`` in ``data``, of at most ``most`` bytes. Raises ``SecAggError`` with ``code``."""
    name = kind.DESCRIPTOR.name
    if len(data) > most:
        raise fault(code, f"a {name} message of {len(data)} bytes (allowed: <= {most})")
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise fault(code, f"a {name} message is malformed") from None
    message.DiscardUnknownFields()
    if message.ByteSize() != len(data):
        raise fault(code, f"a {name} message holds fields that its type has not, or one of them twice")
    return message


def check_digest(digest: bytes, what: str, code: str) -> bytes:
    """``digest`` when it has 32 bytes. Raises ``SecAggError`` with ``code``, naming ``what``."""
    if len(digest) != DIGEST_BYTES:
        raise fault(code, f"{what} has {len(digest)} bytes, not {DIGEST_BYTES}")
    return digest


def check_node(node: str, what: str, code: str) -> str:
    """``node`` when it is a well-formed node id. Raises ``SecAggError`` with ``code``, naming ``what``."""
    if len(node) > 63 or not _NODE_ID.fullmatch(node):
        raise fault(code, f"{what} names a malformed node id")
    return node


def check_purpose(purpose: str, what: str, code: str) -> str:
    """``purpose`` when it can be an exchange's name. Raises ``SecAggError`` with ``code``, naming ``what``."""
    if not PURPOSE.fullmatch(purpose):
        raise fault(code, f"{what} names a malformed exchange")
    return purpose


def check_nodes(nodes: Iterable[str], what: str, code: str) -> tuple[str, ...]:
    """``nodes`` when they are at most 64 well-formed ids in order, none twice. Raises ``SecAggError`` with ``code``."""
    found = tuple(nodes)
    if len(found) > MAX_NODES:
        raise fault(code, f"{what} names {len(found)} nodes (allowed: <= {MAX_NODES})")
    for node in found:
        check_node(node, what, code)
    for one, other in pairwise(found):
        if one == other:
            raise fault(code, f"{what} names node {one} twice")
        if one > other:
            raise fault(code, f"{what} does not name its nodes in order")
    return found
