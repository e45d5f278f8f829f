"""Releases as the log tells them: each with its state, found by number or digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedsecure.errors import ConfigError, LocalProtocolError
from fedsecure_node.keys import MIN_PREFIX, ExchangeKey
from fedsecure_node.log.chain import (
    ANNOUNCED,
    CHARGED,
    CLOSED,
    CONFIRMED,
    FORGOTTEN,
    LINKED,
    MASKED,
    PREDICTION,
    PREDICTION_REFUSED,
    TRUSTED,
    UNMASKED,
    UNTRUSTED,
    Record,
)

__all__ = ["NEVER_SENT", "STATE_WORDS", "TRANSITIONS", "Release", "advance", "find_release", "fold", "next_state"]

#: state -> kinds of records that may follow in it, and the state each leads to. What is absent is refused.
TRANSITIONS: dict[str, dict[str, str]] = {
    "logged": {"held": "held", "withheld": "withheld", "sending": "sending", "unsent": "unsent"},
    "held": {"released": "cleared", "refused": "refused", "unsent": "unsent"},
    "cleared": {"sending": "sending", "unsent": "unsent"},
    "sending": {"acknowledged": "acknowledged", "lapsed": "lapsed"},
    "acknowledged": {MASKED: "masked", CLOSED: "unsummed"},  # one whose summed half is still here
    # without CONFIRMED before UNMASKED in logs of before it was noted
    "masked": {
        MASKED: "masked",
        CONFIRMED: "confirmed",
        UNMASKED: "unmasked",
        ANNOUNCED: "announced",
        CLOSED: "unread",
    },
    "confirmed": {  # and stays so in further sessions: the sum of this one may be read all the same
        MASKED: "confirmed",
        CONFIRMED: "confirmed",
        UNMASKED: "unmasked",
        ANNOUNCED: "announced",
        CLOSED: "unsure",
    },
    "unmasked": {},
    "announced": {},
    "unsummed": {},
    "unread": {ANNOUNCED: "announced"},  # to a node that left the run and came back
    "unsure": {ANNOUNCED: "announced"},
    "withheld": {},
    "refused": {},
    "unsent": {},
    "lapsed": {},
}
STATE_WORDS = {
    "logged": "ready to be sent",
    "held": "held: waits for a person",
    "cleared": "released by a person, ready to be sent",
    "sending": "being sent: bytes may have left, no receipt yet",
    "acknowledged": "sent: the coordinator has it",
    "masked": "sent, its summed half under masks: no sum with it was read as far as this node knows",
    "confirmed": "sent, its summed half under masks: a sum with it may have been read: this node confirmed it",
    "unmasked": "sent, its summed half under masks: inside a sum that the coordinator could read",
    "announced": "sent, its summed half under masks: inside a sum that was read: the coordinator announced it",
    "unsummed": "sent, but for its summed half, which never left",
    "unread": "left under masks, and its exchange is over: no sum with it was read as far as this node knows",
    "unsure": "left under masks, and its exchange is over: a sum with it may have been read: this node confirmed it",
    "withheld": "withheld: its membership audit found a leak; never sent",
    "refused": "refused by a person: never sent",
    "unsent": "never sent: its exchange ended first",
    "lapsed": "sent in part or whole, without a receipt",
}


#: States of releases of which no byte left.
NEVER_SENT = ("withheld", "refused", "unsent")
#: Fields of a release's record that say which contribution it is.
_BRIEF = ("plan", "round", "step", "attempt", "exchange", "payload", "audit", "secagg")
#: Kinds that only a release whose summed half goes under masks can have.
_OF_MASKS = (MASKED, CONFIRMED, UNMASKED, ANNOUNCED, CLOSED)
#: Kinds that speak of no release.
_OF_NONE = (CHARGED, LINKED, FORGOTTEN, PREDICTION, PREDICTION_REFUSED, TRUSTED, UNTRUSTED)


@dataclass(frozen=True, slots=True)
class Release:
    """One release: its number (of its log record), state, the record's fields, and the later records about it."""

    number: int
    state: str
    time: str
    node: str
    hash: str
    body: Mapping[str, Any]
    events: tuple[Record, ...] = ()

    @property
    def payload(self) -> str:
        """SHA-256 of the exact bytes."""
        return str(self.body["payload"]["sha256"])

    @property
    def named(self) -> str:
        """The SHA-256 that people name it by: of all its tensors where a half of it leaves under masks, since what is
        sent of those at once, often nothing, is the same for many."""
        return str(self.body["secagg"].get("kept", self.payload)) if self.is_masked else self.payload

    @property
    def key(self) -> ExchangeKey:
        """The contribution it is."""
        body = self.body
        return ExchangeKey(body["plan"]["digest"], body["round"], body["step"], body["attempt"], body["exchange"])

    @property
    def decide_until(self) -> str:
        """Until when a held release can be decided, by this machine's clock (ISO 8601, UTC); ``""`` if it is not
        held."""
        held = [str(e.body.get("until", "")) for e in self.events if e.kind == "held"]
        return held[-1] if held and self.state == "held" else ""

    @property
    def is_masked(self) -> bool:
        """Whether its summed half leaves inside a masked sum alone."""
        return "secagg" in self.body

    @property
    def masked_bytes(self) -> int:
        """Length of its masked vectors (bytes); 0 when it has none."""
        return sum(int(stream["bytes"]) for stream in self.body["secagg"]["streams"]) if self.is_masked else 0

    @property
    def total_bytes(self) -> int:
        """Bytes that left of it, or will: its payload, and its masked vectors once for each session that they left in,
        or for the one that they wait for."""
        sessions = sum(1 for event in self.events if event.kind == MASKED)
        waits = not sessions and self.state not in ("unsummed", *NEVER_SENT)
        return int(self.body["payload"]["bytes"]) + (sessions + waits) * self.masked_bytes

    @property
    def is_summed_half_open(self) -> bool:
        """Whether what becomes of its summed half is not known yet."""
        return self.is_masked and self.state in ("acknowledged", "masked", "confirmed")

    def words(self) -> str:
        """The state in words, with the time until which a person can decide. Masked vectors leave after the receipt for
        the rest alone."""
        if self.is_masked and self.state == "acknowledged":
            return f"{STATE_WORDS[self.state]}, but for its summed half, which waits to leave under masks"
        if self.is_masked and self.state in ("sending", "lapsed"):
            never = "has not left" if self.state == "sending" else "never left"
            return f"{STATE_WORDS[self.state]}; its summed half {never}: that takes the receipt"
        until = self.decide_until
        return STATE_WORDS[self.state] + (f", until {until}" if until else "")

    def brief(self) -> Release:
        """What a daemon keeps of it in memory: its state, which contribution it is, and its sessions and sums."""
        kept = {name: self.body[name] for name in _BRIEF if name in self.body}
        return replace(self, body=kept, events=tuple(e for e in self.events if e.kind in _OF_MASKS))

    def to_json(self) -> dict[str, Any]:
        """For ``--json``. Rounds and attempts count from 1 there, as everywhere that people read; in the log's own
        records and on the wire they count from 0."""
        return {
            "release": self.number,
            "state": self.state,
            "decide_until": self.decide_until or None,
            "time": self.time,
            "node": self.node,
            "hash": self.hash,
            **self.body,
            "round": self.body["round"] + 1,
            "attempt": self.body["attempt"] + 1,
            "events": [{"record": e.seq, "kind": e.kind, "time": e.time, **e.body} for e in self.events],
        }


def fold(records: Iterable[Record]) -> dict[int, Release]:
    """Releases by number, each in the state that the log's records put it in. Raises ``LocalProtocolError``."""
    releases: dict[int, Release] = {}
    for record in records:
        if (now := advance(releases, record)) is not None:
            releases[now.number] = now
    return releases


def advance(releases: Mapping[int, Release], record: Record) -> Release | None:
    """The release that ``record`` begins or speaks of, in the state it then has; ``None`` for a record that speaks of
    the log itself, of the privacy ledger, a query or a cohort. Raises ``LocalProtocolError``."""
    if record.kind in _OF_NONE:
        return None
    if record.kind == "release":
        return Release(record.seq, "logged", record.time, record.node, record.hash, record.body)
    number = record.body.get("release")
    old = releases.get(number) if isinstance(number, int) else None
    if old is None:
        raise LocalProtocolError(f"release log, record {record.seq}: speaks of a release {number} that is not there")
    return replace(old, state=next_state(old, record.kind), events=(*old.events, record))


def next_state(release: Release, kind: str) -> str:
    """The state after a record of ``kind``. Raises ``LocalProtocolError`` when the state does not allow it."""
    state = TRANSITIONS[release.state].get(kind)
    if state is None or (kind in _OF_MASKS and not release.is_masked):
        raise LocalProtocolError(
            f"release {release.number}: is {STATE_WORDS[release.state]}; it cannot be {kind} now",
            hint="see: fedsecure node releases",
        )
    return state


def find_release(releases: Mapping[int, Release], text: str) -> Release:
    """A release by its number, or by at least ``MIN_PREFIX`` digits of its SHA-256, ``named`` or of its payload. Raises
    ``ConfigError``."""
    wanted = text.strip().lower()
    if wanted.isascii() and wanted.isdecimal() and len(wanted) < MIN_PREFIX:
        if found := releases.get(int(wanted)):
            return found
        raise ConfigError(f"there is no release {wanted}", hint="see: fedsecure node releases")
    if len(wanted) < MIN_PREFIX or set(wanted) - set("0123456789abcdef"):
        raise ConfigError(
            f"{text[:80]!r} names no release",
            hint=f"give its number, or at least {MIN_PREFIX} digits of its SHA-256; see: fedsecure node releases",
        )
    matches = [r for r in releases.values() if r.payload.startswith(wanted) or r.named.startswith(wanted)]
    if len(matches) != 1:
        count = "no release has" if not matches else f"{len(matches)} releases have"
        raise ConfigError(f"{count} a SHA-256 that starts with {wanted[:16]}", hint="give the release's number")
    return matches[0]
