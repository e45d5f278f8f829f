"""The coordinator as a process: a gRPC server over mutual TLS, a timer, a worker, and an orderly end."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from types import TracebackType

import grpc

from fedsecure.crypto.names import COORDINATOR
from fedsecure.errors import ConfigError, FedSecureError
from fedsecure.files import private_folder
from fedsecure.locks import DAEMON_LOCK, daemon_lock
from fedsecure.threads import lacks_thread, threads_needed
from fedsecure.wire.credentials import TlsFiles, own_participant, server_credentials
from fedsecure.wire.v1.coordinator_pb2_grpc import add_CoordinatorServicer_to_server
from fedsecure.wire.v1.prediction_pb2_grpc import add_PredictionServicer_to_server
from fedsecure_coordinator.cohorts.manifests import FOLDER, Cohorts
from fedsecure_coordinator.masking.buffers import Buffers
from fedsecure_coordinator.masking.calls import MaskingCalls
from fedsecure_coordinator.masking.sessions import Sessions
from fedsecure_coordinator.masking.times import Times
from fedsecure_coordinator.prediction.board import Board
from fedsecure_coordinator.prediction.dispatcher import Dispatcher
from fedsecure_coordinator.prediction.models import Models
from fedsecure_coordinator.prediction.servicer import PredictionServicer
from fedsecure_coordinator.prediction.turnstile import CALLS_EACH, Turnstile
from fedsecure_coordinator.runs.notices import Notice
from fedsecure_coordinator.runs.preparation import Preparer, physical_memory
from fedsecure_coordinator.runs.registry import Registry
from fedsecure_coordinator.runs.run import BuildMethod
from fedsecure_coordinator.service.desk import Desk
from fedsecure_coordinator.service.gate import Gate
from fedsecure_coordinator.service.listening import check_listen
from fedsecure_coordinator.service.pool import CallPool
from fedsecure_coordinator.service.servicer import Servicer, ServicerLimits
from fedsecure_coordinator.service.uploads import Uploads
from fedsecure_coordinator.settings import CONFIG_NAME, CoordinatorSettings
from fedsecure_coordinator.store.blobs import BlobStore
from fedsecure_coordinator.store.journal import JOURNAL_NAME, Journal
from fedsecure_coordinator.store.watch import FileWatch
from fedsecure_coordinator.work.worker import Evaluate, Worker

__all__ = ["Daemon"]

#: Deadlines and requests of the command line are looked at this often (seconds).
TICK_SECONDS = 0.25
#: On shutdown: time for transfers in flight, then for an update to reach a point where it can stop (seconds). The
#: preparation of a run never gets any: it cannot be interrupted, and is made again.
GRACE_SECONDS = 3.0
WORKER_SECONDS = 10.0
#: With ``exit_when_done``: time for nodes to hear that their run is over (seconds).
LINGER_SECONDS = 20.0
#: No message but a chunk comes near this size (bytes).
MAX_MESSAGE = 4 << 20
#: Calls on one connection at once; and calls beyond the threads, which wait for one or are refused by it in a moment.
MAX_STREAMS = 100
SPARE_CALLS = 64
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 20_000),
    ("grpc.server_handshake_timeout_ms", 20_000),
)
#: A node without a call for so long, and for three long polls, is not there (seconds).
SILENT_SECONDS = 60.0
#: Masked vectors in transit take at most this part of the machine's memory.
MASKED_PART = 4
_log = logging.getLogger("fedsecure.coordinator")


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _utc() -> datetime:
    return datetime.now(UTC)


class Daemon:
    """A running coordinator: ``with Daemon(…) as daemon: daemon.serve()``.

    ``warm_up`` loads what updates need and returns the device to compute on.

    Entering takes the store's lock, opens the journal, and listens; ``port`` is then the port in use. Raises
    ``ConfigError`` when it cannot listen or another daemon has the store, ``CertificateError`` when its identity is not
    in order, ``StoreError`` when the store is damaged.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        build_method: BuildMethod,
        *,
        evaluate: Evaluate | None = None,
        listen: Callable[[Notice], None] = lambda notice: None,
        warm_up: Callable[[], str] = lambda: "cpu",
        clock: Callable[[], int] = _milliseconds,
    ) -> None:
        self._settings, self._build_method, self._evaluate = settings, build_method, evaluate
        self._listen, self._warm_up, self._clock = listen, warm_up, clock
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self._stack = contextlib.ExitStack()
        self._threads: list[threading.Thread] = []
        self._waited_for: list[threading.Thread] = []
        self._warm = threading.Event()
        self._begun = time.monotonic()
        self.port = 0

    def __enter__(self) -> Daemon:
        with contextlib.ExitStack() as stack:
            store = private_folder(self._settings.store)
            stack.enter_context(daemon_lock(store, "coordinator"))
            self.journal = Journal(store / JOURNAL_NAME)
            stack.callback(self.journal.close)
            self._watch = FileWatch((store / JOURNAL_NAME, store / DAEMON_LOCK))
            blobs = BlobStore(store / "blobs")
            blobs.clean()
            self.registry = Registry(self.journal, blobs, self._build_method, clock=self._clock, listen=self._listen)
            limits = self._settings.limits
            self._cohorts = Cohorts(store / FOLDER)
            buffers = Buffers(physical_memory() // MASKED_PART)
            self.sessions = Sessions(
                self.registry,
                buffers=buffers,
                threads=self._settings.compute.threads or 1,
                times=partial(Times, short=float(limits.leg_seconds)),
                silent=self._is_silent,
            )
            self.desk = Desk(self.registry, max_nodes=limits.max_nodes, legs=self.sessions.leg)
            uploads = Uploads(store / "partial", self.desk)
            self.registry.on_exchange_over(uploads.discard)
            self.registry.on_exchange_over(self.sessions.end)
            self.dispatcher = Dispatcher()
            self._board = Board(self.journal, self.dispatcher)
            self._server = self._build_server(uploads)
            with threads_needed("its server"):
                self._server.start()
            stack.callback(self._shut_down)
            self._start_thread("timer", self._tick)
            self._start_thread("worker", self._work)
            self._start_thread("preparer", self._prepare, waited_for=False)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def _build_server(self, uploads: Uploads) -> grpc.Server:
        settings, limits = self._settings, self._settings.limits
        tls = settings.tls
        files = TlsFiles(tls.key, tls.cert, tls.ca, tls.crl)
        own_participant(
            files, role=COORDINATOR, name=COORDINATOR, federation=settings.federation, now=_utc(), where=CONFIG_NAME
        )
        credentials = server_credentials(files, now=_utc())
        self._gate = gate = Gate(files, federation=settings.federation, crl=tls.crl_place, now=_utc)
        bounds = ServicerLimits(settings.federation, limits.max_wait_ms, limits.chunk_bytes, limits.clock_skew_s * 1000)
        # two long polls and a transfer for each node, the analysts' share, and calls that end at once
        threads = 3 * limits.max_nodes + CALLS_EACH * limits.max_analysts + 8
        server = grpc.server(
            CallPool(threads),
            maximum_concurrent_rpcs=threads + SPARE_CALLS,
            options=list(_OPTIONS),
        )
        masking = MaskingCalls(self.sessions, self._cohorts)
        servicer = Servicer(self.desk, uploads, masking, gate, bounds, clock=self._clock)
        add_CoordinatorServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
        turnstile = Turnstile(limits.max_analysts)
        predictions = PredictionServicer(
            Models(self.registry), self.dispatcher, turnstile, gate, bounds, clock=self._clock
        )
        add_PredictionServicer_to_server(predictions, server)  # type: ignore[no-untyped-call]
        check_listen(settings.listen)
        try:
            self.port = server.add_secure_port(settings.listen, credentials)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise ConfigError(
                f"listen {settings.listen}: cannot be listened on", hint="is the port taken, or the address not ours?"
            )
        return server

    def _is_silent(self, node: str) -> bool:
        """Whether ``node`` is not there: it calls no more, though it has nothing to compute."""
        heard, wait_s = self._gate.heard(node), self._settings.limits.max_wait_ms / 1000
        since = time.monotonic() - (self._begun if heard is None else heard)
        return since > max(SILENT_SECONDS, 3 * wait_s) and not self.desk.is_at_work(node)

    def serve(self, *, exit_when_done: bool = False) -> bool:
        """Block until ``stop``; with ``exit_when_done`` also until every run has ended and its nodes know.

        Returns whether it was stopped, rather than done. Raises the fault of a thread of the daemon, if one had one.
        """
        done = False
        while not done and not self._stop.wait(TICK_SECONDS):
            done = exit_when_done and self.registry.idle()
        if done:
            end = time.monotonic() + LINGER_SECONDS
            while self.desk.untold() and time.monotonic() < end and not self._stop.wait(TICK_SECONDS):
                pass
        if self._fault is not None:
            raise self._fault
        return not done

    def stop(self) -> None:
        """Ask for an orderly end; may be called from a signal handler, and more than once."""
        self._stop.set()

    def _tick(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            self._watch.check()
            self.registry.pass_deadlines()
            self.registry.take_abort_requests()
            self._board.write()

    def _work(self) -> None:
        device = self._warm_up()
        self._warm.set()
        Worker(self.registry, self.sessions, self._stop, device=device, evaluate=self._evaluate).work()

    def _prepare(self) -> None:
        preparer = Preparer(self.registry, self._cohorts, self._stop)
        preparer.list_runs()
        while not self._warm.wait(TICK_SECONDS):
            if self._stop.is_set():
                return
        preparer.prepare()

    def computing(self) -> bool:
        """Whether a computation goes on that the end did not wait for. A process then has to be left without waiting
        for its threads."""
        return any(thread.is_alive() for thread in self._threads)

    def _start_thread(self, name: str, body: Callable[[], None], *, waited_for: bool = True) -> None:
        def guarded() -> None:
            try:
                body()
            except FedSecureError as fault:
                self._fault = fault
            except BaseException as fault:
                _log.exception("the %s failed", name)
                self._fault = fault
            finally:
                self._stop.set()

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        with threads_needed(f"the {name}"):
            thread.start()
        self._threads.append(thread)
        if waited_for:
            self._waited_for.append(thread)

    def _shut_down(self) -> None:
        """Stop accepting, send long polls home, let transfers end, stop the worker. State is on disk all along."""
        self._stop.set()
        try:
            stopped = self._server.stop(GRACE_SECONDS)
        except RuntimeError as error:  # gRPC ends late calls in a thread, and the machine may refuse it
            if not lacks_thread(error):
                raise
            stopped = threading.Event()
        self.registry.close()
        self.dispatcher.close()
        self.sessions.close()
        stopped.wait(2 * GRACE_SECONDS)
        end = time.monotonic() + WORKER_SECONDS
        for thread in self._waited_for:
            thread.join(max(0.0, end - time.monotonic()))
        for thread in self._threads:
            thread.join(TICK_SECONDS)
        self._board.clear()
