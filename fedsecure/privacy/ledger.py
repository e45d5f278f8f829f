"""The privacy ledger: what each data set's records have paid for since they were first computed on, for ever.

**Before** anything is computed: ``charge`` returns when the spend is on the disk, and only then may what it pays for be
computed. A process killed at any instruction has therefore charged too much or the right amount, never too little.

**Per record, conservatively.** A record's loss is what all data sets that hold it have spent: data sets that share a
record share one history (``fedsecure.privacy.datasets``). Adding, dropping or moving records buys no new budget.

**What it lost counts for all.** Entries that were put back from a release log (``restore``) may speak of a data set
whose records the ledger does not know: until it is registered again, its entries are in every data set's history.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from fedsecure.errors import PrivacyBudgetExceeded, StoreError
from fedsecure.files import shown
from fedsecure.privacy.datasets import DataSetRow, DataSets
from fedsecure.privacy.entries import ChargedFor, Entry, EntryKind
from fedsecure.privacy.lease import hold_data_set
from fedsecure.privacy.ledgerfile import Access, LedgerFile
from fedsecure.privacy.spend import Spend, merged

__all__ = ["ComposeEpsilon", "DataSetRow", "Ledger"]

#: (history, delta) -> epsilon: ``fedsecure.privacy.accounting.epsilon``.
ComposeEpsilon = Callable[[Iterable[Spend], float], float]


class Ledger:
    """An open ledger; a context manager. Threads may share it; processes open it each for themselves."""

    def __init__(self, path: Path, access: Access = "create", *, clock: Callable[[], int] = time.time_ns) -> None:
        """Open ``path``, or make it (mode 0600). ``clock``: nanoseconds since 1970; what it says is for people alone.

        Raises ``ConfigError`` when it is absent and not to be made, ``StoreError`` when it cannot be used: damaged, of
        a later version, open to others, not on the disk."""
        self._file = LedgerFile(path, access)
        self._clock = clock
        self._verified: dict[str, Entry] = {}
        self._data_sets = DataSets(self._file)
        try:
            self.identity = bytes(self._meta("identity")).hex()
        except BaseException:
            self._file.close()
            raise

    @property
    def path(self) -> Path:
        """The ledger's own file, links followed."""
        return self._file.path

    @property
    def counter(self) -> int:
        """Number of the last entry; 0 before the first. It never falls, but in an older copy."""
        return int(self._file.rows("SELECT coalesce(max(counter), 0) FROM entries")[0][0])

    def data_set(self, records: Sequence[bytes]) -> str:
        """The id of the data set with these record digests (32 bytes each), registered if it is new. It shares the
        history of those that it shares a record with, and they its. Raises ``DataError`` for none."""
        return self._data_sets.register(records, bytes(self._meta("key")), self._now_ms())

    def lease(self, data_set: str) -> AbstractContextManager[None]:
        """Work on ``data_set`` as the only process of this machine. Raises ``LocalProtocolError`` at once when another
        does, whatever its ledger."""
        return hold_data_set(self.path, data_set)

    def history(self, data_set: str) -> tuple[Spend, ...]:
        """All that counts for the records of ``data_set``, one spend for each (sigma, q). Raises
        ``LocalProtocolError`` when it is not registered."""
        return merged(spend for entry in self.entries(data_set) for spend in entry.spends)

    def entries(self, data_set: str | None = None) -> tuple[Entry, ...]:
        """The entries in their order; of those that count for ``data_set``, if one is given. Raises ``StoreError`` when
        one is not as it was written. Whose an entry is says what its hash is over, and no column beside it."""
        found = self._file.rows("SELECT hash FROM entries ORDER BY counter")
        self._read([hash_ for (hash_,) in found if hash_ not in self._verified])
        every = tuple(self._verified[hash_] for (hash_,) in found)
        if data_set is None:
            return every
        members = {row.id for row in self.sharing(data_set)}
        return tuple(entry for entry in every if entry.data_set in members)

    def data_sets(self) -> tuple[DataSetRow, ...]:
        """All data sets, the oldest first."""
        return self._data_sets.rows()

    def sharing(self, data_set: str) -> tuple[DataSetRow, ...]:
        """The data sets whose spends count for ``data_set``, itself included. Raises ``LocalProtocolError``."""
        return self._data_sets.sharing(data_set)

    def kept_marks(self) -> dict[str, str]:
        """What is kept of the records of each data set that is known, as one SHA-256 (hex): it never changes."""
        return self._data_sets.kept_marks(bytes(self._meta("key")))

    def rejoin(self, groups: Iterable[Iterable[str]], doubtful: Iterable[str] = ()) -> None:
        """Let the data sets of each group share one history again, and count the ``doubtful`` ones for every data set
        until their records are read again: what was kept of these is not as it was."""
        with self._file.transaction():
            for group in groups:
                self._data_sets.join(group, self._now_ms())
            for data_set in doubtful:
                self._data_sets.doubt(data_set)

    def unprotected(self, data_set: str) -> tuple[Entry, ...]:
        """The releases without any guarantee that were made from records of ``data_set``."""
        return tuple(entry for entry in self.entries(data_set) if entry.kind == "unprotected")

    def charge(
        self,
        data_set: str,
        spends: Sequence[Spend],
        *,
        cap: float,
        delta: float,
        what: ChargedFor,
        epsilon: ComposeEpsilon,
    ) -> Entry:
        """Pay for ``spends``; the entry is on the disk on return. ``epsilon`` composes the whole history with them, and
        nobody can spend meanwhile.

        Raises ``PrivacyBudgetExceeded`` when that passes ``cap`` at ``delta``, ``StoreError`` when it cannot be
        written: nothing may be computed then. ``ValueError`` for numbers that make no sense.
        """
        if not spends or not (math.isfinite(cap) and cap >= 0 and 0 < delta < 1):
            raise ValueError(f"nothing to charge, or no such limit: cap {cap}, delta {delta}")
        with self._file.transaction():
            before = self.history(data_set)
            spent = float(epsilon(before, delta)) if before else 0.0
            after = float(epsilon(merged((*before, *spends)), delta))
            if not after <= cap:  # nor if it is NaN
                raise _exceeded(data_set, what, spent, after, cap, delta)
            return self._insert(self._entry(data_set, "charge", what, tuple(spends), (cap, delta, spent, after)))

    def note_unprotected(self, data_set: str, what: ChargedFor) -> Entry:
        """Note that a release without any guarantee is made from ``data_set``: no epsilon covers it."""
        with self._file.transaction():
            self.sharing(data_set)
            return self._insert(self._entry(data_set, "unprotected", what, (), (None, None, None, None)))

    def missing(self, hashes: Iterable[str]) -> set[str]:
        """Those of the entries with these hashes that the ledger lacks: then it is an older copy, or another one."""
        return set(hashes) - {hash_ for (hash_,) in self._file.rows("SELECT hash FROM entries")}

    def restore(self, entries: Iterable[Entry]) -> list[Entry]:
        """Put back what a release log knows and the ledger lacks; returns these as they stand now. Each keeps its
        number where that is free, and gets a new one otherwise."""
        with self._file.transaction():
            taken = {counter for (counter,) in self._file.rows("SELECT counter FROM entries")}
            told = {entry.hash: entry for entry in entries}
            lost = [told[hash_] for hash_ in self.missing(told)]
            put_back = []
            for entry in sorted(lost, key=lambda each: (each.counter in taken, each.counter, each.hash)):
                counter = entry.counter if entry.counter not in taken else max(taken) + 1
                taken.add(counter)
                self._data_sets.name(entry.data_set, self._now_ms())
                put_back.append(self._insert(replace(entry, counter=counter)))
            return put_back

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _meta(self, name: str) -> bytes:
        found = self._file.rows("SELECT value FROM meta WHERE key = ?", (name,))
        if not found:
            raise StoreError(f"{shown(self.path)}: has no {name}", hint="put the newest backup of the ledger back")
        return bytes(found[0][0])

    def _entry(
        self,
        data_set: str,
        kind: EntryKind,
        what: ChargedFor,
        spends: tuple[Spend, ...],
        limits: tuple[float | None, float | None, float | None, float | None],
    ) -> Entry:
        cap, delta, before, after = limits
        nonce = secrets.token_hex(16)
        return Entry(
            self.counter + 1,
            self.identity,
            nonce,
            data_set,
            kind,
            spends,
            cap,
            delta,
            before,
            after,
            what,
            self._now_ms(),
        )

    def _now_ms(self) -> int:
        return self._clock() // 1_000_000

    def _insert(self, entry: Entry) -> Entry:
        self._file.write(
            "INSERT INTO entries VALUES (?, ?, ?, ?)",
            (entry.counter, entry.hash, entry.data_set, entry.canonical().decode()),
        )
        self._verified[entry.hash] = entry
        return entry

    def _read(self, hashes: Sequence[str]) -> None:
        """Read and verify the entries with these hashes, once: they never change."""
        sql = "SELECT counter, hash, body FROM entries WHERE hash IN (SELECT value FROM json_each(?))"
        for counter, hash_, body in self._file.rows(sql, (json.dumps(hashes),)) if hashes else ():
            try:
                raw = {**json.loads(body), "counter": counter, "hash": hash_}
            except (ValueError, TypeError):
                raw = {}
            self._verified[hash_] = Entry.from_json(raw, f"{shown(self.path)}: entry {counter}")


def _exceeded(
    data_set: str, what: ChargedFor, spent: float, after: float, cap: float, delta: float
) -> PrivacyBudgetExceeded:
    return PrivacyBudgetExceeded(
        f"data set {data_set[:12]}: {what.name}, round {what.round + 1} {what.exchange} would take epsilon from "
        f"{spent:.4g} to {after:.4g} at delta {delta:.3g}, past the cap of {cap:g}",
        hint="see what was spent: fedsecure node budget; a spend never comes back",
    )
