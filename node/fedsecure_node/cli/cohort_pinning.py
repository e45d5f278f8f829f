"""A pin and the log's record of it, in an order that errs on the side of less trust.

Trust is in the log before it counts, and ends before that is in the log. If the machine fails in between, the same
verb, typed again, does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedsecure.errors import CertificateError, ConfigError, ReleaseLogError, StoreError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure_node.assemble import open_log
from fedsecure_node.cli.cohort_steps import Site
from fedsecure_node.log.chain import TRUSTED, UNTRUSTED
from fedsecure_node.log.cohorts import CohortDecision, last_decision, trusted_body, untrusted_body
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.store.store import Store, now_ms

__all__ = ["pin", "unpin"]

#: Of a reason, this much is kept (characters).
MAX_REASON = 400


def pin(site: Site, manifest: CohortManifest, *, by: str) -> bool:
    """Pin ``manifest``, which ``by`` compared. Returns whether it was not pinned before.

    Raises ``CertificateError`` as ``Pins.pin``; ``ReleaseLogError`` when the log does not verify: nothing is pinned
    then.
    """
    with Store(site.settings.store) as store:
        pins, log = site.pins_in(store), open_log(store, site.settings)
        pins.check(manifest)
        last = last_decision(log.records(), manifest.cohort)
        if last is None or (last.kind, last.digest) != (TRUSTED, manifest.digest.hex()):
            log.append(TRUSTED, trusted_body(manifest, by=by), only_if=lambda _: None)
        return pins.pin(manifest, by=by)


def unpin(site: Site, cohort: str, *, by: str, reason: str) -> CohortDecision:
    """Trust ``cohort`` no longer, whole or damaged as its pin may be, and note who took that back.

    Raises ``ConfigError`` when it is not pinned (nor, by the log, was before the machine failed); ``ReleaseLogError``
    when the log does not verify: the trust has ended all the same.
    """
    with Store(site.settings.store, create=False) as store:
        ended = store.pins.end(cohort, now_ms=now_ms())
        if ended is not None:
            with _ended_all_the_same(cohort):
                return _note(open_log(store, site.settings), cohort, ended.version, ended.digest, by, reason)
        log = open_log(store, site.settings)
        last = last_decision(log.records(), cohort)
        if last is None or last.kind == UNTRUSTED:
            raise ConfigError(
                f"cohort {cohort[:63]!r} is not trusted by node {site.settings.node}",
                hint="see which are: fedsecure node cohort show",
            )
        return _note(log, cohort, last.version, last.digest, by, reason)


@contextmanager
def _ended_all_the_same(cohort: str) -> Iterator[None]:
    try:
        yield
    except (CertificateError, ReleaseLogError, StoreError) as error:
        raise type(error)(
            f"cohort {cohort} is no longer trusted, but the log has no record of that: {error}", hint=error.hint
        ) from None


def _note(log: ReleaseLog, cohort: str, version: int, digest: str, by: str, reason: str) -> CohortDecision:
    why = " ".join(reason.split())[:MAX_REASON]
    body = untrusted_body(cohort, version, digest, by=by, reason=why)
    return CohortDecision.of(log.append(UNTRUSTED, body, only_if=lambda _: None))
