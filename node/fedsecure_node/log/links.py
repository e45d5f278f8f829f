"""What the release log says of data sets: which of them share one history in the privacy ledger, and what is kept of
their records there. So whoever changes the ledger's file by hand cannot part a changed data set from its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsecure_node.log.chain import Record, log_fault

__all__ = ["Linked", "Links", "linked"]


@dataclass(frozen=True, slots=True)
class Linked:
    """Data sets that share one history, each with what is kept of its records (``Ledger.kept_marks``), ``None`` where
    they are not known. ``record``: number of the log's record that says so."""

    record: int
    data_sets: Mapping[str, str | None]


def linked(record: Record) -> Linked:
    """What a ``linked`` record holds. Raises ``ReleaseLogError``."""
    found = record.body.get("data_sets")
    if (
        not isinstance(found, dict)
        or not found
        or not all(marks is None or isinstance(marks, str) for marks in found.values())
    ):
        raise log_fault(record.seq, "holds no data sets of a privacy ledger")
    return Linked(record.seq, found)


@dataclass(slots=True)
class Links:
    """All of it together, the latest word on each data set's records. ``records``: number of the last record that
    speaks of a data set."""

    marks: dict[str, str | None] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    _next: dict[str, str] = field(default_factory=dict)

    def add(self, found: Linked) -> None:
        """Take in a further record."""
        first, *_ = found.data_sets
        for data_set, marks in found.data_sets.items():
            self.marks[data_set] = marks
            self.records[data_set] = found.record
            self._next.setdefault(data_set, data_set)
            self._next[self.root(data_set)] = self.root(first)

    def root(self, data_set: str) -> str:
        """Equal for data sets that share one history; one that the log does not know stands for itself."""
        while (beyond := self._next.get(data_set, data_set)) != data_set:
            data_set = beyond
        return data_set

    def groups(self) -> list[list[str]]:
        """The data sets by the history that they share."""
        found: dict[str, list[str]] = {}
        for data_set in self.marks:
            found.setdefault(self.root(data_set), []).append(data_set)
        return list(found.values())

    def copy(self) -> Links:
        """One that does not change with this."""
        return Links(dict(self.marks), dict(self.records), dict(self._next))
