"""The noisy counts of private runs: each run counts a node's records by class once, and keeps to that."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fedsecure.errors import StoreError
from fedsecure_node.store.database import Database

__all__ = ["CountBook", "Counted"]


@dataclass(frozen=True, slots=True)
class Counted:
    """``counts``: records of each class, with noise, in the order of the plan's classes. ``data_set``: the ledger's id
    of the records that were counted, to which the run keeps."""

    data_set: str
    counts: tuple[int, ...]


class CountBook:
    """The table of counts."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def find(self, plan: str) -> Counted | None:
        """What the run of the plan with this digest counted, or ``None`` when it did not yet."""
        row = self._db.row("SELECT data_set, counts FROM counted WHERE digest = ?", (plan,))
        if row is None:
            return None
        try:
            return Counted(row["data_set"], tuple(int(count) for count in json.loads(row["counts"])))
        except (ValueError, TypeError):
            raise StoreError(
                f"{self._db.path}: the noisy counts of plan {plan[:12]} are damaged",
                hint="restore the store from a backup; counting again is another spend",
            ) from None

    def keep(self, plan: str, found: Counted, now_ms: int) -> Counted:
        """Keep the counts of a run; on the disk on return. The first that were kept stay, and are returned."""
        self._db.write(
            "INSERT OR IGNORE INTO counted VALUES (?, ?, ?, ?)",
            (plan, found.data_set, json.dumps(found.counts), now_ms),
        )
        kept = self.find(plan)
        assert kept is not None
        return kept
