"""No contribution goes into masked sums of two runs: two sums of the same values over nodes that differ by one would
differ by what that node sent.

Within one run that is ``RunBook.check_model``'s and ``SessionMemory``'s. Here it is over all runs of this node, those
that are over among them: a plan that is submitted again under another name begins from the same model. The first look
is at the model, before anything is computed; the second at what was computed, bit for bit, should a model that was
changed where it does not count give the same again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from fedsecure.errors import RemoteProtocolError
from fedsecure.secagg.values.noised import NoisedVectors
from fedsecure.secagg.values.streams import flatten
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import Payload
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.chain import Record
from fedsecure_node.log.masks import MaskedSum
from fedsecure_node.store.markbook import MarkBook

__all__ = ["Repeats", "marks_told"]

_HINT = "another run under masks needs a plan with another seed; ask the coordinator's operator"


class Repeats:
    """Asked of each contribution to a masked sum whose exchange broadcasts anything: one that broadcasts nothing is
    the same in all runs, and what is to be hidden by masks depends on a model."""

    def __init__(self, book: MarkBook) -> None:
        self._book = book

    def check_model(self, key: ExchangeKey, broadcast: str) -> None:
        """Raise ``RemoteProtocolError`` REPLAYED when another run had a contribution for a masked sum made from
        ``broadcast`` (SHA-256, hexadecimal) in this exchange."""
        other = self._book.other(key.plan, _of_model(key.exchange, broadcast))
        if other is not None:
            raise _replayed(key, "the coordinator sends the model that this node computed from", other)

    def take(self, key: ExchangeKey, broadcast: str, payload: Payload, masks: MaskedSum) -> None:
        """Keep that ``payload`` was made from ``broadcast`` and is to be summed under ``masks``; on the disk on return.
        Raises ``RemoteProtocolError`` REPLAYED when another run had the same summed half."""
        own = [_of_values(hashlib.sha256(payload.summed).hexdigest()), _of_vectors(payload, masks)]
        for mark in own:
            other = self._book.other(key.plan, mark)
            if other is not None:
                raise _replayed(key, "this is bit for bit what this node computed", other)
        self._book.keep(key.plan, [_of_model(key.exchange, broadcast), *own])


def marks_told(records: Iterable[Record]) -> dict[str, list[str]]:
    """Run -> the marks that a log's records tell of, to be kept when the log is given up."""
    found: dict[str, list[str]] = {}
    for record in records:
        secagg = record.body.get("secagg") if record.kind == "release" else None
        if secagg and secagg.get("broadcast"):
            marks = found.setdefault(str(record.body["plan"]["digest"]), [])
            marks.append(_of_model(str(record.body["exchange"]), str(secagg["broadcast"])))
            marks.append(_of_values(str(secagg["summed"]["sha256"])))
    return found


def _replayed(key: ExchangeKey, why: str, other: str) -> RemoteProtocolError:
    text = f"{why} for a masked sum of plan {other[:12]}; two such sums can be subtracted: it takes another seed"
    return RemoteProtocolError(f"REPLAYED: {key}: {text}", hint=_HINT)


def _of_model(exchange: str, broadcast: str) -> str:
    return _mark("model", exchange.encode(), broadcast.encode())


def _of_values(summed: str) -> str:
    return _mark("values", summed.encode())


def _of_vectors(payload: Payload, masks: MaskedSum) -> str:
    """Of the vectors as they would be masked, whatever streams and tensors are called."""
    if masks.noises:
        noised = NoisedVectors.from_bytes(payload.summed)
        return _mark("vectors", *(hashlib.sha256(noised[s.spec.name].tobytes()).digest() for s in masks.streams))
    summed = Tensors.from_bytes(payload.summed)
    vectors = (flatten(stream, summed, nodes=masks.nodes)[0] for stream in masks.streams)
    return _mark("vectors", *(hashlib.sha256(vector.tobytes()).digest() for vector in vectors))


def _mark(kind: str, *parts: bytes) -> str:
    digest = hashlib.sha256(kind.encode())
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()
