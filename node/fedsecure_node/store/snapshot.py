"""A SQLite file as it is at one moment, read without touching it: no lock, no ``-shm``, no write, only reading.

SQLite itself changes the folder of a database in WAL mode even to read it. So the file and the committed frames of its
write-ahead log are put together in memory (SQLite file format, sections 1.3 and 4.1 to 4.3), which works on a copy, on
a file system that is mounted read-only, and beside a daemon that writes.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from fedsecure.errors import StoreError
from fedsecure.files import faults

__all__ = ["snapshot"]

#: How often a file that is being written to is read again, and the pause before (seconds).
TRIES, PAUSE_S = 50, 0.02
#: Lengths of the headers of a database, a write-ahead log and a frame of it (bytes).
DATABASE_HEADER, LOG_HEADER, FRAME_HEADER = 100, 32, 24
#: First word of a write-ahead log whose checksums are little-endian; the last bit set: big-endian.
LOG_MAGIC = 0x377F0682


def snapshot(path: Path) -> sqlite3.Connection:
    """A copy in memory of the database at ``path``, with all that was committed. Raises ``StoreError`` when it cannot
    be read, is damaged, or does not come to rest."""
    for _ in range(TRIES):
        before = _stamps(path)
        image = bytearray(_bytes(path))
        log = _bytes(_log_path(path))
        if _stamps(path) == before:
            return _opened(path, _with_log(image, log))
        time.sleep(PAUSE_S)
    raise StoreError(f"{path}: changes while it is read", hint="try again, or stop the node meanwhile")


def _opened(path: Path, image: bytearray) -> sqlite3.Connection:
    if len(image) >= DATABASE_HEADER:
        image[18:20] = b"\x01\x01"  # not in WAL mode: nothing but these bytes is looked for
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.row_factory = sqlite3.Row
    try:
        if image:  # SQLite takes a file without a byte for a database without a table, but here calls it out of memory
            connection.deserialize(bytes(image))
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error as error:
        connection.close()
        raise StoreError(f"{path}: is damaged: {error}", hint="restore the store from a backup") from None
    return connection


def _with_log(image: bytearray, log: bytes) -> bytearray:
    """The database with the frames of its log up to the last one that ends a transaction."""
    pending: list[tuple[int, bytes]] = []
    for page, pages, data in _frames(log):
        pending.append((page, data))
        if not pages:
            continue
        for number, content in pending:
            start = (number - 1) * len(content)
            image.extend(bytes(max(start + len(content) - len(image), 0)))
            image[start : start + len(content)] = content
        del image[pages * len(data) :]
        pending.clear()
    return image


def _frames(log: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(page number, pages of the database if a transaction ends here else 0, content) of each frame that counts: of the
    log's present generation, its checksum following from all before it."""
    if len(log) < LOG_HEADER:
        return
    magic, _, size, _, salt1, salt2, *checksum = struct.unpack(">8I", log[:LOG_HEADER])
    if magic & ~1 != LOG_MAGIC or not 512 <= size <= 65_536:
        return
    order = ">" if magic & 1 else "<"
    state = _checksum(order, log[: LOG_HEADER - 8], (0, 0))
    if list(state) != checksum:
        return
    for at in range(LOG_HEADER, len(log) - FRAME_HEADER - size + 1, FRAME_HEADER + size):
        page, pages, *rest = struct.unpack(">6I", log[at : at + FRAME_HEADER])
        data = log[at + FRAME_HEADER : at + FRAME_HEADER + size]
        state = _checksum(order, log[at : at + 8] + data, state)
        if rest != [salt1, salt2, *state] or not page:
            return
        yield page, pages, data


def _checksum(order: str, data: bytes, state: tuple[int, int]) -> tuple[int, int]:
    """SQLite file format, section 4.2: over pairs of 32-bit words."""
    first, second = state
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def _log_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _bytes(path: Path) -> bytes:
    with faults(path, "read"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return b""


def _stamps(path: Path) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for each in (path, _log_path(path)):
        with faults(each, "looked at"):
            try:
                now = each.stat()
            except FileNotFoundError:
                found.append((0,))
                continue
        found.append((now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns))
    return found
