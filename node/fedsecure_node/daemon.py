"""The node daemon: dial out, tend plans, answer exchanges, until told to stop. One loop, no inbound port."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from fedsecure.errors import (
    CertificateError,
    ConfigError,
    ReleaseLogError,
    RunAborted,
    StoreError,
    WireError,
)
from fedsecure.method import Cancelled
from fedsecure.threads import lacks_thread, threads_needed
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.desk import PlanDesk
from fedsecure_node.egress import Gate
from fedsecure_node.link.connect import Link
from fedsecure_node.link.transfer import Backoff
from fedsecure_node.masking.desk import LegDesk
from fedsecure_node.masking.settling import close_sums
from fedsecure_node.progress import Reporter
from fedsecure_node.serving.desk import QueryDesk
from fedsecure_node.serving.keeping import ServingKeeper
from fedsecure_node.store.store import Store, now_ms
from fedsecure_node.text import printable
from fedsecure_node.work import ExchangeDesk, Outcome, as_error

__all__ = ["Connect", "Desks", "NodeDaemon"]

Connect = Callable[[threading.Event], Link]

#: How often the list of offered plans is asked for while nothing else happens (milliseconds).
LIST_MS = 2_000
#: Pause after an exchange that cannot go on yet: held, or late (seconds).
PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Desks:
    """What the loop works with."""

    store: Store
    gate: Gate
    plans: PlanDesk
    exchanges: ExchangeDesk
    legs: LegDesk
    keeper: ServingKeeper
    queries: QueryDesk


class NodeDaemon:
    """Runs until stopped or, with ``exit_when_done``, until every run that this node joined has ended."""

    def __init__(
        self, desks: Desks, connect: Connect, reporter: Reporter, stop: threading.Event, *, exit_when_done: bool
    ) -> None:
        self._desks = desks
        self._connect = connect
        self._reporter = reporter
        self._stop = stop
        self._exit_when_done = exit_when_done
        self._aborted: RunAborted | None = None
        self._version = -1
        #: The runs that were active when it was last looked whether sums of others are to be closed.
        self._active: frozenset[str] | None = None
        #: Runs whose exchange waits until no session of another run is open.
        self._postponed: set[str] = set()

    def run(self) -> None:
        """Serve. Returns after an orderly stop; raises what cannot be mended by trying again, or, with
        ``exit_when_done``, the reason for which a run did not complete."""
        with threads_needed("the queries"):
            self._desks.queries.start()
        try:
            self._connections()
        except Cancelled:
            pass
        finally:
            self._desks.legs.close_all()
            self._desks.queries.close()
        self._desks.queries.check()
        self._reporter.say("stopped", "the node stops")
        if not self._stop.is_set():
            self._raise_outcome()

    def _connections(self) -> None:
        """Connect, serve, and connect again when the line breaks; returns when all is done or at a stop."""
        backoff = Backoff(self._stop)
        while not self._stop.is_set():
            self._check()
            try:
                with threads_needed("a connection"):
                    link = self._connect(self._stop)
            except WireError as error:
                self._reporter.say("unreachable", f"{error}; trying again")
                backoff.wait()
                continue
            if self._serve(link, backoff):
                break

    def _check(self) -> None:
        """Raise ``StoreError`` when the store vanished, and what ended the thread that answers queries. Sessions of
        masked sums that are over end here as well."""
        self._desks.store.check_there()
        self._desks.queries.check()
        self._desks.legs.expire()

    def _serve(self, link: Link, backoff: Backoff) -> bool:
        """Serve over one connection. True when all is done, False when the connection broke."""
        self._reporter.say("connected", f"connected to {link.destination.address} ({link.destination.certificate})")
        try:
            self._desks.queries.use(link)
            with threads_needed("the work of a run"):
                while not self._stop.is_set():
                    self._check()
                    if not self._desks.legs.is_under_way():  # the other nodes of its cohort wait for this one
                        self._desks.plans.tend(link)
                        self._close_sums()
                    if self._all_done():
                        return True
                    self._take_work(link)
                    backoff.reset()
        except WireError as error:
            if self._all_done():  # a coordinator that ends with its last run is not waited for
                return True
            self._reporter.say("disconnected", f"{error}; connecting again")
            backoff.wait()
        finally:
            self._desks.queries.use(None)
            if not link.client.close():
                text = "the connection does not close and is given up: this machine is out of threads, or gRPC hangs"
                self._reporter.say("given-up", text)
        return False

    def _take_work(self, link: Link) -> None:
        waiting = self._desks.legs.waiting()
        if not waiting:
            self._postponed.clear()
        due = self._due()
        if not due:
            self._pause(PAUSE_S if self._desks.store.runs.active() else LIST_MS / 1000)
            return
        self._version = self._desks.store.database.version()
        reply = link.client.next_work(due, min(LIST_MS, link.max_wait_ms), self._changed)
        kind = None if reply is None else reply.WhichOneof("work")
        if reply is None or kind is None or kind == "nothing":
            return
        work = getattr(reply, kind)
        if kind != "leg" and work.plan_digest not in due:
            self._not_due(work.plan_digest)
        elif kind == "ended":
            self._end(work, link)
        elif kind == "exchange" and waiting - {work.plan_digest}:
            self._postponed.add(work.plan_digest)  # the nodes of an open session are not left waiting for it
        else:
            self._answer(work, link)

    def _due(self) -> list[str]:
        """The runs that work is asked for now: neither postponed, nor at rest because their legs were refused."""
        rest_s = self._desks.legs.refusals.rest_s
        active = self._desks.store.runs.active()
        return [digest for digest in active if digest not in self._postponed and rest_s(digest) <= 0]

    def _not_due(self, digest: str) -> None:
        """The coordinator sent work of a run that it was not asked for."""
        text = f"plan {printable(digest[:12])}: the coordinator sends work that it was not asked for; it is not done"
        if self._desks.legs.refusals.refused("", text):
            self._reporter.say("not-due", text)
        self._rest()

    def _rest(self) -> None:
        """Pause: as long as runs that are not joined are to rest, but a little in any case."""
        self._pause(max(self._desks.legs.refusals.rest_s(""), PAUSE_S))

    def _answer(self, work: pb.Exchange | pb.Leg, link: Link) -> None:
        desks = self._desks
        try:
            done = self._answered(work, link)
        except (WireError, Cancelled, CertificateError, ReleaseLogError, StoreError, ConfigError):
            raise
        except Exception as error:
            if lacks_thread(error):
                raise  # it passes: no reason to leave a run
            stage = f"round {work.round + 1}, exchange {work.exchange[:40]}"
            desks.legs.close(work.plan_digest, "the node leaves the run")
            self._close_releases(work.plan_digest, "the node left the run")  # whatever becomes of the call
            desks.plans.leave(work.plan_digest, as_error(error), stage, link)
            done = False
        if not done:
            self._rest()

    def _answered(self, work: pb.Exchange | pb.Leg, link: Link) -> bool:
        """Whether an exchange or a leg is dealt with, rather than to be asked for again after a pause."""
        if isinstance(work, pb.Leg):
            return self._desks.legs.answer(work, link)
        self._desks.legs.close(work.plan_digest, "the coordinator asks for another contribution")
        return self._desks.exchanges.answer(work, link) is Outcome.SENT

    def _end(self, ended: pb.Ended, link: Link) -> None:
        store = self._desks.store
        completed = ended.state == pb.RUN_STATE_COMPLETED
        kept = self._desks.keeper.keep(ended, link) if completed else ""
        if kept is None:
            self._pause(PAUSE_S)
            return
        reason = printable(ended.reason[:300]) or "no reason given"
        error = RunAborted(f"plan {ended.plan_digest[:12]}: aborted: {reason}")
        store.runs.end(
            ended.plan_digest,
            "completed" if completed else "aborted",
            kept if completed else reason,
            0 if completed else error.exit_code,
            now_ms(),
        )
        self._desks.legs.close(ended.plan_digest, "the run is over")
        store.plans.set_offered(ended.plan_digest, "completed" if completed else "aborted")
        self._close_releases(ended.plan_digest, "the run is over", completed=completed)
        if not completed:
            self._aborted = error
        done = f"plan {ended.plan_digest[:12]}: completed" + (f"; {kept}" if kept else "")
        text = done if completed else str(error)
        self._reporter.say("ended", text, plan=ended.plan_digest, completed=completed)

    def _close_releases(self, digest: str, reason: str, *, completed: bool = False) -> None:
        for release in self._desks.gate.open_releases(digest):
            self._desks.gate.close(release, reason)
        close_sums(self._desks.gate, digest, reason, went_on=completed)

    def _close_sums(self) -> None:
        """Sums of runs that ended where no exchange was answered: the plan was refused, or an earlier version ran."""
        active = frozenset(self._desks.store.runs.active())
        if active == self._active:
            return
        for digest in {release.key.plan for release in self._desks.gate.sums.open()} - active:
            close_sums(self._desks.gate, digest, "the node takes no further part in the run")
        self._active = active

    def _pause(self, seconds: float) -> None:
        """Wait a little; shorter when a verb changed the store or the daemon is asked to stop."""
        version = self._desks.store.database.version()
        for _ in range(max(int(seconds / 0.2), 1)):
            if self._stop.wait(0.2) or self._desks.store.database.version() != version or self._desks.queries.failed:
                return

    def _changed(self) -> bool:
        return self._desks.queries.failed or self._desks.store.database.version() != self._version

    def _all_done(self) -> bool:
        if not self._exit_when_done:
            return False
        desks = self._desks
        if desks.store.runs.active() or desks.plans.waiting:
            return False
        return bool(desks.store.runs.all() or desks.plans.failures)

    def _raise_outcome(self) -> None:
        for error in self._desks.plans.failures.values():
            raise error
        if self._aborted is not None:
            raise self._aborted
