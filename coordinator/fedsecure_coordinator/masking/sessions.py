"""The sessions that are open, one a run: each in a thread of its own, so that other runs go on meanwhile.

A session that fails is followed by another with fresh keys over the same contributions, up to ``MAX_SESSIONS`` in all;
then the exchange is asked for again. A sum is durable before anything else is done with it. Ended runs and a daemon
that stops end their sessions at once; after a restart a new session begins unless there is a sum already. A sum that is
lost (``lost``) skips its round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from fedsecure.errors import RemoteProtocolError, SecAggError, StoreError
from fedsecure.rounds.events import Aggregate, AttemptFailed, Phase, SumLost, UpdateFailed
from fedsecure.secagg.machines.coordinator import Sums
from fedsecure.secagg.machines.memory import MAX_SESSIONS
from fedsecure.secagg.protocol.results import result_digest
from fedsecure.threads import threads_needed
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_coordinator.masking.announced import announcement, summed_tensors
from fedsecure_coordinator.masking.buffers import Buffers
from fedsecure_coordinator.masking.lost import lost, to_invite
from fedsecure_coordinator.masking.session import ClosedLeg, Session, SessionOver
from fedsecure_coordinator.masking.task import Task
from fedsecure_coordinator.masking.times import Times
from fedsecure_coordinator.runs.registry import Registry
from fedsecure_coordinator.runs.run import Run, one_line
from fedsecure_coordinator.store.sums import MaskedSum

__all__ = ["Sessions"]

#: A sum that cannot be stored is tried again this often (seconds), so many times: the disk may be mended meanwhile.
STORE_SECONDS, STORE_TRIES = 10.0, 60
#: Leg 0 takes no longer than this, whatever the plan allows an exchange; and no session longer than that (seconds):
#: a node refuses keys that would live for more than a week.
MAX_FIRST_SECONDS, MAX_SECONDS = 3 * 86_400.0, 6 * 86_400.0
#: On shutdown: time for sessions to end; one may be in the middle of unmasking (seconds).
END_SECONDS = 5.0
#: Bytes of masked vectors in transit at once, unless the daemon knows better.
BUFFERED = 1 << 30
_log = logging.getLogger("fedsecure.coordinator")


class Sessions:
    """The open sessions of ``registry``'s runs. ``buffers``: room for vectors in transit. ``threads`` of one session's
    arithmetic. ``times`` of legs, by the seconds of the first. ``silent``: whether a node called no more for a while,
    though it has nothing to compute."""

    def __init__(
        self,
        registry: Registry,
        *,
        buffers: Buffers | None = None,
        threads: int = 1,
        times: Callable[[float], Times] = Times,
        silent: Callable[[str], bool] = lambda node: False,
    ) -> None:
        self._registry, self._buffers = registry, buffers or Buffers(BUFFERED)
        self._arithmetic, self._times, self._silent = threads, times, silent
        self._sessions: dict[str, Session] = {}
        self._tasks: dict[str, Task] = {}
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()

    # Sums -------------------------------------------------------------------------------------------------------------
    def begin(self, run: Run, action: Aggregate) -> None:
        """Have the contributions that ``action`` names summed; the run is due again when they are, or when that
        failed. Nothing happens when they are being summed already, or the run went on. Raises ``WireError`` when the
        machine starts no further thread."""
        registry, digest = self._registry, run.digest
        with registry.changed:
            known = self._tasks.get(digest)
            if run.masks is None or self._closing.is_set() or (known is not None and known.action == action):
                return
            last = registry.journal.last_sum(digest, action.round, action.exchange)
            task = Task(run, action, run.masks, result_digest(announcement(last, run.row.broadcast)))
            if not self._goes_on(task):
                return
            thread = threading.Thread(target=self._body, args=(task,), name="session", daemon=True)
            with threads_needed("a session"):
                thread.start()
            self._tasks[digest] = task
            self._threads = [t for t in self._threads if t.is_alive()] + [thread]

    def _body(self, task: Task) -> None:
        try:
            self._sum(task)
        except SessionOver:
            pass
        except StoreError as error:  # no run ends by that: it is taken up again until the store is mended
            _log.error("%s", error)
            self._again(task, STORE_SECONDS)
        except Exception as error:
            _log.exception("a session failed")
            self._feed(task, AttemptFailed(one_line(error)))
        finally:
            self._forget(task)

    def _sum(self, task: Task) -> None:
        """Sessions until there is a sum. Raises ``SessionOver`` when it is not needed any more, ``StoreError``."""
        reasons: list[str] = []
        for number in range(MAX_SESSIONS):
            try:
                session = self._open(task, number)
            except SecAggError as error:  # too many nodes left the run
                self._feed(task, AttemptFailed(str(error)))
                return
            try:
                sums = session.drive(partial(self._closed, task, number))
                self._store(task, sums)
            except SecAggError as error:
                reasons.append(str(error))
                self._note(task, "session-failed", {"session": number, "reason": reasons[-1]})
            else:
                self._registry.take_up_again(task.run.digest)
                return
            if len(session.invited) - len(session.spent | session.worn) < session.config.min_survivors:
                self._feed(task, lost(task, session, reasons))
                return
        self._feed(task, AttemptFailed(f"{MAX_SESSIONS} sessions gave no sum, the last: {reasons[-1]}"))

    def _open(self, task: Task, number: int) -> Session:
        """The next session, known to polls. Raises ``SessionOver``."""
        registry, run = self._registry, task.run
        times = self._times(min(run.plan.deadlines.exchange, MAX_FIRST_SECONDS))
        with registry.changed:
            if self._closing.is_set() or not self._goes_on(task):
                raise SessionOver("the sum is not needed any more")
            self._sessions = {d: s for d, s in self._sessions.items() if registry.run(d) is not None}
            state = run.machine.state
            there = [node for node in task.action.contributors if node not in state.left]
            invited = to_invite(there, registry.journal.events(run.digest))
            nbytes = task.nbytes * self._buffers.turns(len(invited), task.nbytes)
            seconds = min(times.in_all(nbytes), MAX_SECONDS)
            config = task.config(number, registry.clock() + round(1000 * seconds))
            session = Session(
                config,
                task.masks.manifest,
                task.streams,
                invited,
                task.action.attempt,
                noises=task.noises,
                times=times,
                buffers=self._buffers,
                threads=self._arithmetic,
                clock=registry.clock,
                left=lambda node: node in run.machine.state.left,
                silent=self._silent,
                wake=self._wake,
            )
            self._sessions[run.digest] = session
        at = {"session": number, "invited": list(invited), "threshold": config.threshold, "least": config.min_survivors}
        self._note(task, "session", at)
        return session

    def _closed(self, task: Task, number: int, leg: ClosedLeg) -> None:
        where = {"session": number, "leg": leg.leg}
        self._note(task, "session-leg", {**where, "nodes": list(leg.answered), "dropped": leg.dropped})

    def _store(self, task: Task, sums: Sums) -> None:
        """Keep the sum, durably. Raises ``SecAggError`` for one that cannot be, ``SessionOver``, ``StoreError``."""
        registry, action = self._registry, task.action
        tensors, clipped = summed_tensors(sums, task.streams, len(task.masks.manifest.nodes), task.noises)
        data, digests = tensors.to_bytes(), tuple(digest.hex() for digest in sums.sum_sha256)
        where = (task.run.digest, action.round, action.exchange, action.attempt)
        out = sorted(set(action.contributors) - set(sums.survivors))
        found = {"survivors": list(sums.survivors), "dropped": {n: sums.dropped.get(n, "") for n in out}}
        for last in (*[False] * (STORE_TRIES - 1), True):
            try:
                with registry.changed:
                    if not self._goes_on(task):
                        raise SessionOver("the sum is not needed any more")
                    blob = registry.blobs.put(data)
                    kept = MaskedSum(*where, blob, sums.survivors, sums.transcript3.hex(), digests)
                    registry.journal.add_sum(kept)
                break
            except StoreError as error:
                if last:
                    raise
                _log.error("%s", error)
                if self._closing.wait(STORE_SECONDS):
                    raise SessionOver("the daemon stops") from None
        self._note(task, "masked-sum", {**found, "clipped": clipped, "findings": list(sums.findings)})

    # What sessions need of the registry -------------------------------------------------------------------------------
    def _goes_on(self, task: Task) -> bool:
        """Whether the run still waits for this sum. Hold the registry's lock."""
        run = task.run
        here = self._registry.run(run.digest) is run and run.machine.state.phase is Phase.AGGREGATING
        return here and run.machine.pending() == (task.action,)

    def _feed(self, task: Task, event: AttemptFailed | SumLost | UpdateFailed) -> None:
        with self._registry.changed:
            if self._goes_on(task):
                self._registry.feed(task.run.digest, event)

    def _note(self, task: Task, kind: str, detail: dict[str, Any]) -> None:
        """Tell of it. What cannot be written down ends no session."""
        where = {"round": task.action.round, "exchange": task.action.exchange}
        try:
            self._registry.note(task.run.digest, kind, {**where, **detail})
        except StoreError as error:
            _log.error("%s", error)

    def _again(self, task: Task, seconds: float) -> None:
        if not self._closing.wait(seconds):
            self._forget(task)
            self._registry.take_up_again(task.run.digest)

    def _forget(self, task: Task) -> None:
        with self._registry.changed:
            if self._tasks.get(task.run.digest) is task:
                del self._tasks[task.run.digest]

    def _wake(self) -> None:
        with self._registry.changed:
            self._registry.changed.notify_all()

    # Ending -----------------------------------------------------------------------------------------------------------
    def end(self, digest: str) -> None:
        """End a run's session at once: its sum is not needed any more."""
        session = self._sessions.get(digest)
        if session is not None:
            session.end()

    def close(self) -> None:
        """End all sessions; no new one begins."""
        with self._registry.changed:  # what is just being opened is in the list, or is not opened
            self._closing.set()
            sessions, threads = list(self._sessions.values()), list(self._threads)
        for session in sessions:
            session.end()
        end = time.monotonic() + END_SECONDS
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    # Calls of nodes ---------------------------------------------------------------------------------------------------
    def leg(self, digest: str, node: str) -> pb.Leg | None:
        """What a run's session is waiting for from this node. Never waits."""
        session = self._sessions.get(digest)
        return None if session is None else session.leg(node)

    def count(self, session: Session, node: str, nbytes: int) -> None:
        """Count the bytes of masked vectors that a node sent."""
        if nbytes:
            self._registry.journal.add_traffic(session.config.experiment, session.config.round, node, up=nbytes)

    def session(self, digest: str, config_digest: str, node: str) -> Session:
        """The run's session, of which ``node`` is one. Raises ``RemoteProtocolError`` when it is not open any more,
        another took its place, or the node was not invited."""
        found = self._sessions.get(digest)
        if found is None or found.digest != config_digest or node not in found.invited:
            raise RemoteProtocolError(
                f"node {node} is in no open session {config_digest[:12]!r} of run {digest[:12]!r}",
                hint="ask for the next work",
            )
        return found
