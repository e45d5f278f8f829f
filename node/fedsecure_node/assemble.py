"""Putting a node together from its settings: the store, the log with the node's key, the gate, the desks, the
daemon."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import UTC, datetime
from functools import partial

from fedsecure.crypto.signatures import load_identity, verify
from fedsecure.files import exists
from fedsecure.locks import daemon_lock
from fedsecure.signals import stop_on_signals
from fedsecure_node.auditing.auditor import Auditor
from fedsecure_node.auditing.holdout import HeldOut
from fedsecure_node.computing import Computation
from fedsecure_node.daemon import Connect, Desks, NodeDaemon
from fedsecure_node.desk import PlanDesk
from fedsecure_node.egress import Gate
from fedsecure_node.link.connect import connect, tls_files
from fedsecure_node.log.budget import check_ledger_at
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.log.witness import Witness
from fedsecure_node.masking.desk import LegDesk
from fedsecure_node.masking.pins import Pins
from fedsecure_node.masking.terms import MaskTerms
from fedsecure_node.plans.institution import PolicyWatch
from fedsecure_node.plans.localdata import FittingData, LoadData, LocalData
from fedsecure_node.progress import InTurn, Reporter, last_words, make_reporter
from fedsecure_node.serving.admission import Admission
from fedsecure_node.serving.answering import Answerer
from fedsecure_node.serving.desk import QueryDesk
from fedsecure_node.serving.envelopes import own_signer
from fedsecure_node.serving.keeping import ServingKeeper
from fedsecure_node.serving.models import Models
from fedsecure_node.settings import NodeSettings
from fedsecure_node.spending.affordable import CostOf
from fedsecure_node.spending.answers import AnswerLabels
from fedsecure_node.spending.begun import begun_runs_at
from fedsecure_node.spending.desk import SpendingDesk
from fedsecure_node.spending.purse import Purse
from fedsecure_node.store.store import Store
from fedsecure_node.work import BuildMethod, ExchangeDesk

__all__ = ["cost_of", "open_log", "run_node"]


def _clock() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def open_log(store: Store, settings: NodeSettings) -> ReleaseLog:
    """The release log with the node's identity key. Raises ``CertificateError`` when the key is missing or loose."""
    identity = load_identity(settings.identity)
    return ReleaseLog(
        store.log_path,
        node=settings.node,
        signer=identity,
        verifier=partial(verify, identity.public_bytes),
        head=store.head,
        set_head=store.set_head,
        clock=_clock,
        witness=Witness(settings.identity),
    )


def cost_of(settings: NodeSettings) -> CostOf:
    """What private plans cost this node's data set, for the verbs."""
    data = LocalData(settings.data, lambda lines: None)
    return CostOf(
        settings.ledger,
        data,
        HeldOut(data, settings.holdout),
        check=partial(check_ledger, settings),
        begun=partial(begun_runs_at, settings),
        node=settings.node,
    )


def check_ledger(settings: NodeSettings) -> None:
    """Raise ``PrivacyBudgetExceeded`` when the privacy ledger tells less than the release log knows, was changed by
    hand, or is gone; changes nothing."""
    if exists(settings.store):
        with Store(settings.store, create=False) as store:
            log = open_log(store, settings)
            check_ledger_at(settings.ledger, log.charges(), log.links())


def _check_never_had_one(settings: NodeSettings) -> None:
    """Raise ``ReleaseLogError`` when this node had a log: its store is gone, and is not made anew in silence."""
    witness = Witness(settings.identity)
    if witness.read() is not None:
        witness.check((), partial(verify, load_identity(settings.identity).public_bytes))


def _build_method() -> BuildMethod:
    from fedsecure.methods import build_method

    return build_method


def run_node(
    settings: NodeSettings,
    *,
    hold: bool = False,
    exit_when_done: bool = False,
    log_format: str = "",
    reporter: Reporter | None = None,
    stop: threading.Event | None = None,
    build_method: BuildMethod | None = None,
    load_data: LoadData | None = None,
    connect_with: Connect | None = None,
) -> None:
    """Run the daemon until SIGTERM, SIGINT, ``stop`` or, with ``exit_when_done``, the end of every joined run.

    The last five are for composition: what they leave out is the real thing. Raises ``CertificateError`` for a cause
    that trying again does not mend, ``ReleaseLogError`` when the log was changed, ``ConfigError`` for the rest.
    """
    stop = stop or threading.Event()
    reporter = InTurn(reporter or make_reporter(log_format or settings.log.format))
    try:
        if not exists(settings.store):
            _check_never_had_one(settings)
        words = partial(last_words, log_format or settings.log.format)
        stoppable = stop_on_signals(stop.set, last_words=words)
        with stoppable, Store(settings.store) as store, daemon_lock(store.folder, "node"):
            store.clean()
            log = open_log(store, settings)
            if repaired := log.recover():
                reporter.say("repaired", repaired)
            purse = Purse(settings.ledger, log, node_id=settings.node)
            with closing(purse):
                purse.check()
                desks = _desks(settings, store, log, purse, reporter, stop, hold, build_method, load_data)
                connecting = connect_with or partial(connect, settings)
                NodeDaemon(desks, connecting, reporter, stop, exit_when_done=exit_when_done).run()
    finally:
        reporter.close()


def _desks(
    settings: NodeSettings,
    store: Store,
    log: ReleaseLog,
    purse: Purse,
    reporter: Reporter,
    stop: threading.Event,
    hold: bool,
    build_method: BuildMethod | None,
    load_data: LoadData | None,
) -> Desks:
    def told(lines: list[str]) -> None:
        for line in lines:
            reporter.say("data", f"local data: {line}")

    identity = load_identity(settings.identity)
    pins = Pins(store, node=settings.node, federation=settings.federation, public_bytes=identity.public_bytes)
    terms = MaskTerms(store.sessions, pins, node_id=settings.node)
    known = LocalData(settings.data, told, identify=lambda: purse.is_there)
    data = FittingData(load_data, settings.data) if load_data else known
    held_out = HeldOut(data, settings.holdout)
    spending = SpendingDesk(store, purse, reporter, data=data, held_out=held_out)
    build = build_method or _build_method()
    device = settings.compute.apply()
    gate = Gate(store, log, node_id=settings.node, hold=hold)
    watch = PolicyWatch(settings.policy)
    plans = PlanDesk(store, reporter, node_id=settings.node, watch=watch, cohorts=pins, spending=spending)
    computation = Computation(store, gate, reporter, stop, node_id=settings.node, spending=spending, device=device)
    exchanges = ExchangeDesk(
        store,
        gate,
        reporter,
        computation,
        node_id=settings.node,
        watch=watch,
        terms=terms,
        build_method=build,
        spending=spending,
        auditor=Auditor(store, reporter),
    )
    legs = LegDesk(
        store,
        gate,
        reporter,
        node_id=settings.node,
        identity=identity,
        terms=terms,
        allowed=exchanges.allowed,
        method=exchanges.method,
        threads=settings.compute.threads or 1,
    )
    keeper = ServingKeeper(store, reporter, watch=watch, build_method=build)
    queries = _queries(settings, store, log, purse, reporter, build, device)
    return Desks(store, gate, plans, exchanges, legs, keeper, queries)


def _queries(
    settings: NodeSettings,
    store: Store,
    log: ReleaseLog,
    purse: Purse,
    reporter: Reporter,
    build: BuildMethod,
    device: str,
) -> QueryDesk:
    """What the thread that answers queries works with: its own models and watch of the policy."""
    watch = PolicyWatch(settings.policy)
    models = Models(store, build)
    files = partial(tls_files, settings)
    admission = Admission(
        node=settings.node,
        federation=settings.federation,
        files=files,
        watch=watch,
        models=models,
        tally=log.queries,
    )
    answerer = Answerer(
        store,
        log,
        reporter,
        models=models,
        admission=admission,
        node=settings.node,
        device=device,
        signer=lambda: own_signer(files()),
        guarantee_of=AnswerLabels(purse, store.counts, log),
    )
    return QueryDesk(
        answerer,
        models,
        reporter,
        node=settings.node,
        federation=settings.federation,
        files=files,
        watch=watch,
    )
