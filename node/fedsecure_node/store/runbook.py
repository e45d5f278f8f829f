"""Runs that the node joined: its private seed, its local state, and the contribution it made in each exchange."""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from fedsecure.errors import ConfigError, RemoteProtocolError
from fedsecure.files import faults, private_folder, write_durably
from fedsecure.rounds.transitions import MAX_ATTEMPTS
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import Payload
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.store.database import Database
from fedsecure_node.store.files import read_digest_named

__all__ = ["Finished", "Run", "RunBook"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run that the node joined. ``seed`` is private and stays out of ``repr``."""

    digest: str
    joined_ms: int
    local: str
    state: str
    reason: str
    exit_code: int
    ended_ms: int | None


@dataclass(frozen=True, slots=True)
class Finished:
    """A contribution that was computed: it is sent, or sent again, but never computed again."""

    key: ExchangeKey
    broadcast: str
    payload: str
    summed_bytes: int
    released_bytes: int


class RunBook:
    """The tables of runs and exchanges, with their files under ``local/`` and ``releases/``."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._db = database
        self._local = private_folder(folder / "local")
        self._payloads = private_folder(folder / "releases")

    # runs

    def join(self, digest: str, now_ms: int) -> None:
        """Keep a run with a private seed from the operating system, before the coordinator hears of it. Idempotent."""
        self._db.write(
            "INSERT OR IGNORE INTO runs (digest, joined_ms, seed) VALUES (?, ?, ?)",
            (digest, now_ms, secrets.randbits(63)),
        )

    def reopen(self, digest: str) -> None:
        """A run that was left is joined anew: same seed, same local state."""
        self._db.write(
            "UPDATE runs SET state = 'active', reason = '', exit_code = 0, ended_ms = NULL WHERE digest = ?", (digest,)
        )

    def end(self, digest: str, state: str, reason: str, exit_code: int, now_ms: int) -> None:
        """Keep how a run ended for this node (``completed``, ``aborted``, ``left``); the first end stays."""
        self._db.write(
            "UPDATE runs SET state = ?, reason = ?, exit_code = ?, ended_ms = ? WHERE digest = ? AND state = 'active'",
            (state, reason, exit_code, now_ms, digest),
        )

    def find(self, digest: str) -> Run | None:
        """The run of a plan, or ``None`` when the node never joined it."""
        row = self._db.row("SELECT * FROM runs WHERE digest = ?", (digest,))
        return _run(row) if row else None

    def all(self) -> list[Run]:
        """Every run that was joined, in that order."""
        return [_run(row) for row in self._db.rows("SELECT * FROM runs ORDER BY joined_ms, digest")]

    def active(self) -> list[str]:
        """Plan digests of the runs whose end is not known."""
        return [run.digest for run in self.all() if run.state == "active"]

    def local(self, digest: str) -> Tensors:
        """The local state after the last exchange of a run; empty when there was none. Raises ``StoreError`` when its
        file is gone or was changed."""
        run = self.find(digest)
        if run is None or not run.local:
            return Tensors()
        return Tensors.from_bytes(read_digest_named(self._local_path(run.local), run.local, "local state"))

    def private_seed(self, digest: str) -> int:
        """The run's seed, drawn by the operating system at the first join."""
        row = self._db.row("SELECT seed FROM runs WHERE digest = ?", (digest,))
        if row is None:
            raise ConfigError(f"plan {digest[:12]}: not joined")
        return int(row["seed"])

    # exchanges

    def finished(self, key: ExchangeKey) -> Finished | None:
        """The contribution made under exactly this key, if there is one."""
        row = self._db.row(
            "SELECT * FROM exchanges WHERE digest = ? AND round = ? AND step = ? AND attempt = ?",
            (key.plan, key.round, key.step, key.attempt),
        )
        return _finished(row) if row else None

    def check_order(self, key: ExchangeKey) -> None:
        """Refuse an exchange that goes back behind one already answered, or one attempt too many."""
        if key.attempt >= MAX_ATTEMPTS:
            raise RemoteProtocolError(
                f"{key}: the coordinator asks for attempt {key.attempt + 1} of one exchange (allowed: {MAX_ATTEMPTS})",
                hint="every attempt is another look at the records; ask the coordinator's operator why they fail",
            )
        row = self._db.row(
            "SELECT * FROM exchanges WHERE digest = ? ORDER BY round DESC, step DESC, attempt DESC LIMIT 1", (key.plan,)
        )
        if row and (row["round"], row["step"], row["attempt"]) > (key.round, key.step, key.attempt):
            raise RemoteProtocolError(
                f"{key}: the coordinator asks for an exchange before the last one answered"
                f" (round {row['round'] + 1} {row['exchange']})",
                hint="the coordinator lost its state or misbehaves; ask its operator",
            )

    def check_model(self, key: ExchangeKey, broadcast: str, announced: tuple[int, int] | None) -> None:
        """Refuse a broadcast that this exchange was computed from in another round already: under masks, two sums of
        one model whose survivors differ by a node differ by what that node made of it. A round after the ``announced``
        sum (round and step; ``None``: after none) was skipped, as its own was lost: then it is the same model, and what
        keeps the sums apart is ``SessionMemory``. The first exchange of a round is refused another one."""
        rows = self._db.rows(
            "SELECT round, broadcast FROM exchanges WHERE digest = ? AND step = ? AND round != ? ORDER BY round DESC",
            (key.plan, key.step, key.round),
        )
        for row in rows:
            skipped = announced is None or (row["round"], key.step) > announced
            if not skipped and row["broadcast"] == broadcast:
                raise RemoteProtocolError(
                    f"{key}: the coordinator sends the same model as in round {row['round'] + 1}, for another masked "
                    "sum",
                    hint="two sums of one model can be subtracted; ask the coordinator's operator",
                )
            if skipped and key.step == 0 and row["broadcast"] != broadcast:
                raise RemoteProtocolError(
                    f"{key}: the coordinator sends another model than in round {row['round'] + 1}, and announces no "
                    "sum since",
                    hint="the coordinator lost its state or misbehaves; ask its operator; nothing was computed",
                )

    def local_for(self, key: ExchangeKey) -> tuple[str, Tensors]:
        """Local state that an exchange starts from: a further attempt starts where the first one did."""
        row = self._db.row(
            "SELECT local_before FROM exchanges WHERE digest = ? AND round = ? AND step = ? ORDER BY attempt LIMIT 1",
            (key.plan, key.round, key.step),
        )
        run = self.find(key.plan)
        digest = str(row["local_before"]) if row else (run.local if run else "")
        if not digest:
            return "", Tensors()
        return digest, Tensors.from_bytes(read_digest_named(self._local_path(digest), digest, "local state"))

    def finish(
        self, key: ExchangeKey, *, broadcast: str, payload: Payload, before: str, local: Tensors, now_ms: int
    ) -> Finished:
        """Keep a contribution and the local state after it: files first, then one transaction; on the disk on
        return."""
        import hashlib

        state = local.to_bytes()
        after = hashlib.sha256(state).hexdigest()
        write_durably(self._local_path(after), state)
        digest = payload.digest()
        write_durably(self.payload_path(digest), payload.data)
        done = Finished(key, broadcast, digest, len(payload.summed), len(payload.released))
        with self._db.transaction():
            self._db.write(
                "INSERT INTO exchanges VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    key.plan, key.round, key.step, key.attempt, key.exchange, broadcast, digest,
                    done.summed_bytes, done.released_bytes, before, after, now_ms,
                ),
            )  # fmt: skip
            self._db.write("UPDATE runs SET local = ? WHERE digest = ?", (after, key.plan))
        self._forget_old_local()
        return done

    def payload(self, done: Finished) -> Payload:
        """The exact bytes of a finished contribution. Raises ``StoreError`` when the file is gone or changed."""
        data = read_digest_named(self.payload_path(done.payload), done.payload, "release")
        return Payload(data[: done.summed_bytes], data[done.summed_bytes :])

    def payload_path(self, digest: str) -> Path:
        """Where the bytes of a release lie."""
        return self._payloads / f"{digest}.bin"

    def _local_path(self, digest: str) -> Path:
        return self._local / f"{digest}.safetensors"

    def _forget_old_local(self) -> None:
        """Remove local states that no run can need again: all but those around its last exchange."""
        kept = {row["local"] for row in self._db.rows("SELECT local FROM runs")}
        for row in self._db.rows(
            "SELECT e.local_before FROM exchanges e WHERE NOT EXISTS (SELECT 1 FROM exchanges l"
            " WHERE l.digest = e.digest AND (l.round > e.round OR (l.round = e.round AND l.step > e.step)))"
        ):
            kept.add(row["local_before"])
        with faults(self._local, "cleaned"):
            for path in self._local.glob("*.safetensors"):
                if path.stem not in kept:
                    path.unlink(missing_ok=True)


def _run(row: sqlite3.Row) -> Run:
    return Run(
        row["digest"], row["joined_ms"], row["local"], row["state"], row["reason"], row["exit_code"], row["ended_ms"]
    )


def _finished(row: sqlite3.Row) -> Finished:
    key = ExchangeKey(row["digest"], row["round"], row["step"], row["attempt"], row["exchange"])
    return Finished(key, row["broadcast"], row["payload"], row["summed_bytes"], row["released_bytes"])
