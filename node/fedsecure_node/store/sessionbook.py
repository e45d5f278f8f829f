"""What a node must remember of sums under masks: what it was asked for, the rounds it began, and the sums it helped to
unmask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fedsecure_node.keys import ExchangeKey
from fedsecure_node.store.database import Database

__all__ = ["Asked", "SessionBook"]


@dataclass(frozen=True, slots=True)
class Asked:
    """Under whose masks an exchange was asked for. ``cohort``: its digest (hexadecimal), ``""`` for no masks.
    ``previous``: H("result", …) of the last masked sum that the coordinator announced with it; empty for none."""

    cohort: str
    previous: bytes


class SessionBook:
    """The tables of what was asked for and of sessions. Every write is on the disk when it returns."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def ask(self, key: ExchangeKey, asked: Asked) -> None:
        """Keep how an exchange is asked for that is about to be computed."""
        place = (key.plan, key.round, key.step, key.attempt)
        self._db.write("INSERT OR REPLACE INTO asked VALUES (?, ?, ?, ?, ?, ?)", (*place, asked.cohort, asked.previous))

    def asked(self, key: ExchangeKey) -> Asked:
        """How an exchange was asked for when it was computed; without masks in a store of an earlier version."""
        row = self._db.row(
            "SELECT cohort, previous FROM asked WHERE digest = ? AND round = ? AND step = ? AND attempt = ?",
            (key.plan, key.round, key.step, key.attempt),
        )
        return Asked(row["cohort"], row["previous"]) if row else Asked("", b"")

    def is_masked(self, digest: str) -> bool:
        """Whether any exchange of a run was asked for under masks."""
        return self._db.row("SELECT 1 FROM asked WHERE digest = ? AND cohort <> '' LIMIT 1", (digest,)) is not None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Look and write as one step, on the disk when it ends."""
        with self._db.transaction():
            yield

    def highest(self, experiment: str, purpose: str) -> int | None:
        """The last round of which a session was begun, or ``None``."""
        row = self._db.row(
            "SELECT max(round) AS round FROM sessions WHERE experiment = ? AND purpose = ?", (experiment, purpose)
        )
        return None if row is None or row["round"] is None else int(row["round"])

    def begin(self, experiment: str, purpose: str, round_: int) -> None:
        """Count a session of this triple that begins."""
        self._db.write(
            "INSERT INTO sessions VALUES (?, ?, ?, NULL, 1) ON CONFLICT (experiment, purpose, round)"
            " DO UPDATE SET begun = begun + 1",
            (experiment, purpose, round_),
        )

    def begun(self, experiment: str, purpose: str, round_: int) -> int:
        """How many sessions of this triple were begun."""
        row = self._db.row(
            "SELECT begun FROM sessions WHERE experiment = ? AND purpose = ? AND round = ?",
            (experiment, purpose, round_),
        )
        return int(row["begun"]) if row else 0

    def released(self, experiment: str, purpose: str, round_: int) -> bytes | None:
        """T3 of the sum of this triple that this node helped to unmask, or ``None``."""
        row = self._db.row(
            "SELECT released FROM sessions WHERE experiment = ? AND purpose = ? AND round = ?",
            (experiment, purpose, round_),
        )
        return bytes(row["released"]) if row and row["released"] is not None else None

    def release(self, experiment: str, purpose: str, round_: int, transcript3: bytes) -> bool:
        """Keep T3, unless there is one already. Returns whether it was kept."""
        changed = self._db.write(
            "INSERT INTO sessions VALUES (?, ?, ?, ?, 0) ON CONFLICT (experiment, purpose, round)"
            " DO UPDATE SET released = excluded.released WHERE released IS NULL",
            (experiment, purpose, round_, transcript3),
        )
        return changed == 1

    def survivors(self, experiment: str, purpose: str, model: bytes) -> tuple[str, ...] | None:
        """The nodes of the sums of this model (a broadcast's digest) that this node helped to unmask, or ``None``."""
        row = self._db.row(
            "SELECT survivors FROM unmasked WHERE experiment = ? AND purpose = ? AND model = ?",
            (experiment, purpose, model),
        )
        return tuple(json.loads(row["survivors"])) if row else None

    def released_among(self, experiment: str, purpose: str, round_: int) -> tuple[str, ...] | None:
        """The nodes of the sum of this triple that this node helped to unmask, or ``None``."""
        row = self._db.row(
            "SELECT survivors FROM unmasked JOIN exchanges ON digest = experiment AND exchange = purpose"
            " AND broadcast = lower(hex(model)) WHERE experiment = ? AND purpose = ? AND round = ?",
            (experiment, purpose, round_),
        )
        return tuple(json.loads(row["survivors"])) if row else None

    def keep_survivors(self, experiment: str, purpose: str, model: bytes, survivors: tuple[str, ...]) -> None:
        """Keep the nodes of such a sum; the first that were kept stay."""
        values = (experiment, purpose, model, json.dumps(survivors))
        self._db.write("INSERT OR IGNORE INTO unmasked VALUES (?, ?, ?, ?)", values)
