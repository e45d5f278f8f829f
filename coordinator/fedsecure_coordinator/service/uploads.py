"""Resumable uploads: bytes go to a partial file of the slot, are checked as a whole, and then become a contribution.

Before the first byte is stored the header must fit the schema and be due. A file grows only from its end, is flushed to
the disk before its length is acknowledged, and never passes the declared length. A slot has one partial file: a
contribution of other bytes replaces it, and a node's newer upload ends its older one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fedsecure.errors import RemoteProtocolError, WireError
from fedsecure.files import PRIVATE_FILE, faults, private_folder, sync_folder, write_all
from fedsecure.wire.codec import check_key, decode_payload
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_coordinator.service.desk import Desk, Slot

__all__ = ["Uploads", "slot_of"]

_HEX: Final = frozenset("0123456789abcdef")


def slot_of(key: pb.UploadKey) -> Slot:
    """Where the contribution that ``key`` declares belongs. Raises ``RemoteProtocolError`` for malformed digests."""
    for field, value in (("plan_digest", key.plan_digest), ("payload_digest", key.payload_digest)):
        if len(value) != 64 or set(value) - _HEX:
            raise RemoteProtocolError(f"upload header: {field} is not 64 lower-case hexadecimal digits")
    return Slot(key.plan_digest, key.round, key.exchange, key.attempt, key.node_id)


class Uploads:
    """Takes uploads for a desk; partial files lie in ``folder``, one sub-folder a run."""

    def __init__(self, folder: Path, desk: Desk) -> None:
        self._folder, self._desk = private_folder(folder), desk
        self._lock = threading.Lock()
        self._turns: dict[Slot, int] = {}

    def offset(self, key: pb.UploadKey) -> tuple[int, bool]:
        """How many bytes of this contribution are stored for good, and whether it was accepted.

        Raises ``DataError`` naming the tensor, or ``RemoteProtocolError``, when it cannot be accepted (any more).
        """
        slot = slot_of(key)
        total = self._settled(slot, key)
        if total is not None:
            return total, True
        check_key(key, self._desk.schema(slot, key.payload_digest))
        with self._lock:
            return _durable_length(self._place(slot, key)), False

    def receive(self, key: pb.UploadKey, offset: int, pieces: Iterable[bytes]) -> tuple[int, bool]:
        """Store ``pieces`` from ``offset`` on; with the last byte check and accept the contribution.

        Returns (bytes stored, accepted). When ``pieces`` breaks off, what came is kept, and its error goes on. Raises
        ``DataError`` naming the tensor (then nothing of it is kept), ``RemoteProtocolError`` for a wrong offset, too
        many bytes, other bytes than declared, or a contribution that is not due; ``WireError`` when a newer upload of
        the same contribution took over.
        """
        slot = slot_of(key)
        total = self._settled(slot, key)
        if total is not None:
            return total, True
        schema = self._desk.schema(slot, key.payload_digest)
        check_key(key, schema)
        place, declared = self._place(slot, key), key.summed_bytes + key.released_bytes
        stored = self._append(slot, place, offset, pieces, declared)
        if stored < declared:
            return stored, False
        with faults(place, "read"), _while_due():
            data = place.read_bytes()
        try:
            decode_payload(data, key, schema)
        except BaseException:
            _forget(place)
            raise
        self._desk.accept(slot, data, key.SerializeToString(deterministic=True))
        _forget(place)
        return stored, True

    def discard(self, digest: str) -> None:
        """Forget the partial files of a run: its exchange is over."""
        shutil.rmtree(self._folder / digest, ignore_errors=True)
        with self._lock:
            self._turns = {s: t for s, t in self._turns.items() if s.digest != digest}

    def _settled(self, slot: Slot, key: pb.UploadKey) -> int | None:
        """Length of the contribution if exactly it was accepted. Raises when another was: it cannot be replaced."""
        known = self._desk.accepted(slot)
        if known is None:
            return None
        if known.payload != key.payload_digest:
            raise RemoteProtocolError(
                f"node {slot.node}: another contribution to round {slot.round + 1}, {slot.exchange} "
                "is already accepted",
                hint="a contribution cannot be replaced",
            )
        return known.bytes

    def _place(self, slot: Slot, key: pb.UploadKey) -> Path:
        """The partial file; its name is a digest that we make. Files of other bytes for the slot are removed."""
        folder = private_folder(self._folder / slot.digest)
        prefix = _name(slot.round, slot.exchange, slot.attempt, slot.node)
        place = folder / f"{prefix}-{_name(key.payload_digest, key.summed_bytes, key.released_bytes)}"
        with faults(folder, "read"):
            for other in folder.glob(f"{prefix}-*"):
                if other != place:
                    other.unlink(missing_ok=True)
        return place

    def _append(self, slot: Slot, place: Path, offset: int, pieces: Iterable[bytes], declared: int) -> int:
        with self._lock:
            turn = self._turns[slot] = self._turns.get(slot, 0) + 1
            stored = _durable_length(place)
        if offset != stored:
            raise RemoteProtocolError(
                f"upload: continues at byte {offset} where {stored} are stored", hint="ask for the offset first"
            )
        with _appending(place) as handle:
            for piece in pieces:
                if stored + len(piece) > declared:
                    raise RemoteProtocolError(f"upload: more than the declared {declared} bytes came")
                with self._lock:
                    if self._turns.get(slot) != turn:
                        raise WireError("upload: a newer upload of this contribution took over")
                    with faults(place):
                        write_all(handle, piece)
                stored += len(piece)
        return stored


def _name(*parts: str | int) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@contextmanager
def _appending(place: Path) -> Iterator[int]:
    """The file, to be added to at its end; flushed to the disk however the block ends."""
    with faults(place), _while_due():
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        yield handle
    finally:
        with faults(place), _while_due():
            try:
                os.fsync(handle)
                sync_folder(place.parent)
            finally:
                os.close(handle)


@contextmanager
def _while_due() -> Iterator[None]:
    """What is gone was taken away because nobody waits for it any more."""
    try:
        yield
    except FileNotFoundError:
        raise WireError("upload: it was completed by another call, or is no longer due") from None


def _forget(place: Path) -> None:
    with faults(place, "removed"):
        place.unlink(missing_ok=True)


def _durable_length(place: Path) -> int:
    """Length of a file whose bytes are all on the disk; 0 if it is not there."""
    with faults(place, "read"):
        try:
            handle = os.open(place, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            os.fsync(handle)
            return os.fstat(handle).st_size
        finally:
            os.close(handle)
