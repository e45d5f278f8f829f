"""Going on without a release log that is lost or damaged: only when a person says so, and never in silence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from fedsecure.crypto.signatures import load_identity, verify
from fedsecure.errors import ConfigError
from fedsecure.files import exists
from fedsecure.locks import daemon_lock
from fedsecure.privacy.ledger import Ledger
from fedsecure_node.assemble import open_log
from fedsecure_node.log.budget import readable_charges, readable_links
from fedsecure_node.log.chain import read_log, readable
from fedsecure_node.masking.repeats import marks_told
from fedsecure_node.settings import NodeSettings
from fedsecure_node.store.store import Store

__all__ = ["Forgotten", "forget_log"]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What the first record of the new log says: who, why, what was wrong, and where the rest of the old one is; and
    whether there is a privacy ledger to go on with, which holds what the old log still told of."""

    by: str
    reason: str
    fault: str
    kept: str
    ledger: bool


def forget_log(settings: NodeSettings, *, reason: str, by: str) -> Forgotten:
    """Begin a new log whose first record tells that the old one is forgotten; what is left of it is kept beside, and
    what it tells of spent budgets is put into the privacy ledger, and what it tells of masked sums is kept in the
    store, so that nothing goes into a second one.

    Raises ``LocalProtocolError`` when the log is whole, ``ConfigError`` while a daemon uses the store or without a
    reason.
    """
    text = " ".join(reason.split())[:400]
    if not text:
        raise ConfigError("forget-log: a reason is needed", hint="say what happened to the store; the log keeps it")
    with Store(settings.store) as store, daemon_lock(store.folder, "node"):
        body = open_log(store, settings).begin_anew(by=by, reason=text).body
        check = partial(verify, load_identity(settings.identity).public_bytes)
        records = readable(read_log(store.folder / body["kept"]), check) if body["kept"] else []
        for run, marks in marks_told(records).items():
            store.marks.keep(run, marks)
        if charges := readable_charges(records):
            with Ledger(settings.ledger) as ledger:
                ledger.restore(charges)
                ledger.rejoin(readable_links(records).groups())
    return Forgotten(body["by"], body["reason"], body["fault"], body["kept"], exists(settings.ledger))
