"""One entry of the privacy ledger: what was spent from which data set, for what, and the hash that names it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedsecure.errors import StoreError
from fedsecure.privacy.spend import Spend

__all__ = ["ChargedFor", "Entry", "EntryKind"]

#: ``charge``: spends that were paid for. ``unprotected``: a release without any guarantee was made from the data set.
EntryKind = Literal["charge", "unprotected"]


@dataclass(frozen=True, slots=True)
class ChargedFor:
    """What an entry is about. ``plan``: its digest, and ``name``; ``round`` and ``attempt`` count from 0; ``node``: who
    computes; ``noise`` and ``mechanism``: as the plan's ``[privacy]`` names them."""

    plan: str
    name: str
    round: int
    exchange: str
    attempt: int
    node: str
    noise: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as it stands in a ledger, under ``counter`` there (from 1).

    ``ledger``: identity of the ledger that it was first written to; ``nonce``: 16 random bytes (hex), so that no two
    entries are equal. ``epsilon_before``, ``epsilon_after``: of all that the data set's records spent, at ``delta``;
    ``cap``: on the latter; these four are ``None`` for ``unprotected``. ``time_ms``: since 1970 by the machine's clock,
    for people alone: the order is the counter's.
    """

    counter: int
    ledger: str
    nonce: str
    data_set: str
    kind: EntryKind
    spends: tuple[Spend, ...]
    cap: float | None
    delta: float | None
    epsilon_before: float | None
    epsilon_after: float | None
    what: ChargedFor
    time_ms: int

    def body(self) -> dict[str, Any]:
        """What the hash is over: everything but the counter, which another ledger may give anew."""
        return {
            "ledger": self.ledger,
            "nonce": self.nonce,
            "data_set": self.data_set,
            "kind": self.kind,
            "spends": [[float(spend.sigma), float(spend.q), int(spend.steps)] for spend in self.spends],
            "cap": _number(self.cap),
            "delta": _number(self.delta),
            "epsilon_before": _number(self.epsilon_before),
            "epsilon_after": _number(self.epsilon_after),
            "what": asdict(self.what),
            "time_ms": self.time_ms,
        }

    def canonical(self) -> bytes:
        """``body`` in the one form that is hashed and kept."""
        return json.dumps(
            self.body(), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of ``canonical``: the entry's name in every ledger and log."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """For the release log and ``--json``: ``from_json`` makes the same entry of it."""
        return {"counter": self.counter, "hash": self.hash, **self.body()}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], where: str) -> Entry:
        """The entry that ``to_json`` told of. Raises ``StoreError`` naming ``where`` when it is none, or is not the one
        that its hash names."""
        try:
            kind: EntryKind = "charge" if raw["kind"] == "charge" else "unprotected"
            made = cls(
                counter=_whole(raw["counter"]),
                ledger=str(raw["ledger"]),
                nonce=str(raw["nonce"]),
                data_set=str(raw["data_set"]),
                kind=kind,
                spends=tuple(Spend(float(sigma), float(q), _whole(steps)) for sigma, q, steps in raw["spends"]),
                cap=_number(raw["cap"]),
                delta=_number(raw["delta"]),
                epsilon_before=_number(raw["epsilon_before"]),
                epsilon_after=_number(raw["epsilon_after"]),
                what=ChargedFor(**raw["what"]),
                time_ms=_whole(raw["time_ms"]),
            )
            if made.hash == raw["hash"]:
                return made
        except (KeyError, TypeError, ValueError):
            pass
        raise StoreError(f"{where}: is not as it was written", hint="put the newest backup of the ledger back")


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("not a whole number")
    return value


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
