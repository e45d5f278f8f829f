"""Plans that a coordinator offered, and what the institution decided about each."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Literal

from fedsecure.config import validate
from fedsecure.errors import ConfigError
from fedsecure.plan import Plan
from fedsecure_node.keys import MIN_PREFIX
from fedsecure_node.store.database import Database

__all__ = ["Decision", "PlanBook", "SeenPlan"]

Decision = Literal["pending", "approved", "refused"]


@dataclass(frozen=True, slots=True)
class SeenPlan:
    """A plan that was offered: its bytes, the policy's last verdict, and the institution's decision."""

    digest: str
    canonical: bytes
    name: str
    first_seen_ms: int
    violations: tuple[str, ...]
    policy_fault: str
    checked_ms: int
    offered: str
    refusal_told: str
    decision: Decision
    decided_by: str
    decided_ms: int | None
    reason: str

    def plan(self) -> Plan:
        """The plan itself, parsed from its canonical bytes."""
        return validate(Plan, self.canonical, f"plan {self.digest[:12]}")


def _seen(row: sqlite3.Row) -> SeenPlan:
    fields = {key: row[key] for key in row.keys()}  # noqa: SIM118 - a Row iterates over its values
    return SeenPlan(**{**fields, "violations": tuple(json.loads(row["violations"]))})


class PlanBook:
    """The table of plans."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def record(self, plan: Plan, digest: str, offered: str, now_ms: int) -> SeenPlan:
        """Keep a plan at first sight; note in which state it is offered now."""
        old = self._db.row("SELECT offered FROM plans WHERE digest = ?", (digest,))
        if old is None:
            self._db.write(
                "INSERT OR IGNORE INTO plans (digest, canonical, name, first_seen_ms, offered) VALUES (?, ?, ?, ?, ?)",
                (digest, plan.canonical(), plan.name, now_ms, offered),
            )
        elif old["offered"] != offered:
            self._db.write("UPDATE plans SET offered = ? WHERE digest = ?", (offered, digest))
        return self.get(digest)

    def set_offered(self, digest: str, state: str) -> None:
        """Note in which state a known plan is offered now."""
        self._db.write("UPDATE plans SET offered = ? WHERE digest = ? AND offered <> ?", (state, digest, state))

    def set_verdict(self, digest: str, violations: list[str], policy_fault: str, now_ms: int) -> None:
        """Keep what the policy says of a plan: broken rules, or why there is no usable policy."""
        self._db.write(
            "UPDATE plans SET violations = ?, policy_fault = ?, checked_ms = ? WHERE digest = ?",
            (json.dumps(violations), policy_fault, now_ms, digest),
        )

    def decide(self, digest: str, decision: Decision, *, by: str, reason: str, now_ms: int) -> None:
        """Keep a decision with who, when and why."""
        self._db.write(
            "UPDATE plans SET decision = ?, decided_by = ?, decided_ms = ?, reason = ? WHERE digest = ?",
            (decision, by, now_ms, reason, digest),
        )

    def approve_pending(self, digest: str, *, by: str, reason: str, now_ms: int) -> None:
        """Keep an approval that is not a person's, unless a person decided meanwhile."""
        self._db.write(
            "UPDATE plans SET decision = 'approved', decided_by = ?, decided_ms = ?, reason = ?"
            " WHERE digest = ? AND decision = 'pending'",
            (by, now_ms, reason, digest),
        )

    def set_refusal_told(self, digest: str, reason: str) -> None:
        """Keep which refusal the coordinator knows, so that it is told once."""
        self._db.write("UPDATE plans SET refusal_told = ? WHERE digest = ?", (reason, digest))

    def get(self, digest: str) -> SeenPlan:
        """The plan with exactly this digest. Raises ``ConfigError`` when it was never offered."""
        row = self._db.row("SELECT * FROM plans WHERE digest = ?", (digest,))
        if row is None:
            raise ConfigError(f"plan {digest[:12]}: was not offered to this node", hint="see: fedsecure node plans")
        return _seen(row)

    def all(self) -> list[SeenPlan]:
        """Every plan ever offered, oldest first."""
        return [_seen(row) for row in self._db.rows("SELECT * FROM plans ORDER BY first_seen_ms, digest")]

    def resolve(self, prefix: str) -> SeenPlan:
        """The one plan whose digest starts with ``prefix`` (at least ``MIN_PREFIX`` digits). Raises ``ConfigError``."""
        text = prefix.strip().lower()
        if len(text) < MIN_PREFIX or set(text) - set("0123456789abcdef"):
            raise ConfigError(
                f"{prefix[:80]!r} is not a plan's digest",
                hint=f"give at least its first {MIN_PREFIX} hexadecimal digits; see: fedsecure node plans",
            )
        found = [plan for plan in self.all() if plan.digest.startswith(text)]
        if not found:
            raise ConfigError(f"no plan with digest {text[:16]}… was offered", hint="see: fedsecure node plans")
        if len(found) > 1:
            raise ConfigError(f"{len(found)} plans have a digest that starts with {text}", hint="give more digits")
        return found[0]
