"""Who is calling: binds every message to the certificate of its connection, revocations included."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import cast

import grpc

from fedsecure.crypto.certificates import fingerprint
from fedsecure.errors import CertificateError
from fedsecure.wire.credentials import TlsFiles, peer_identity
from fedsecure_coordinator.quota import Quota

__all__ = ["Gate"]

#: A connection that a node used within this time counts as in use (seconds): a node polls more often.
TWIN_SECONDS = 60.0
#: So many connections of a node are remembered.
MAX_PLACES = 4
_log = logging.getLogger("fedsecure.coordinator")


class Gate:
    """Checks callers. ``now``: the time in UTC. ``crl`` may be absent on disk; it is read again whenever it changes.

    Once a list was read, its file may not vanish: nobody is let in until it is back.
    """

    def __init__(self, files: TlsFiles, *, federation: str, crl: Path, now: Callable[[], datetime]) -> None:
        self._federation, self._crl, self._now = federation, crl, now
        self._ca = files.ca_pem()
        self._lock = threading.Lock()
        self._quota = Quota()
        self._places: dict[str, dict[str, float]] = {}
        self._seen: tuple[int, int, int] | None = None
        self._list: bytes | None = None
        self._revocations()

    def require_node(self, context: grpc.ServicerContext, node: str) -> None:
        """Raise ``CertificateError``, naming the reason, unless the caller is the node that it says it is.

        Who is refused is in the log, with address, certificate and reason, at most once a minute each.
        """
        self._require(context, "node", node)
        self._log_twins(node, context.peer())

    def heard(self, node: str) -> float | None:
        """When ``node`` last called (``time.monotonic``); ``None``: not since this process began."""
        with self._lock:
            return max(self._places.get(node, {}).values(), default=None)

    def require_analyst(self, context: grpc.ServicerContext, analyst: str) -> None:
        """The same for an analyst, who may well call from several places at once."""
        self._require(context, "analyst", analyst)

    def _require(self, context: grpc.ServicerContext, role: str, name: str) -> None:
        try:
            identity = peer_identity(
                context, federation=self._federation, ca_pem=self._ca, crl_pem=self._revocations(), now=self._now()
            )
            identity.require(role, name)
        except CertificateError as error:
            self._log_refused(context, str(error))
            raise

    def _log_refused(self, context: grpc.ServicerContext, reason: str) -> None:
        peer, shown = context.peer(), _fingerprint(context)
        times = self._quota.take((peer.rpartition(":")[0], shown, reason))
        if times:
            _log.warning(
                "refused %s, certificate %s: %s%s",
                *(peer, shown, reason, f" ({times} times)" if times > 1 else ""),
                extra={"fields": {"event": "refused", "peer": peer, "fingerprint": shown, "times": times}},
            )

    def _log_twins(self, node: str, peer: str) -> None:
        """Warn of a node that goes back to a connection after it used another: there are two of it at once."""
        with self._lock:
            now = time.monotonic()
            places = self._places.setdefault(node, {})
            back = peer in places and next(reversed(places)) != peer
            others = [p for p, at in places.items() if p != peer and now - at < TWIN_SECONDS]
            places.pop(peer, None)
            places[peer] = now
            while len(places) > MAX_PLACES:
                del places[next(iter(places))]
        times = self._quota.take((node, "twins")) if back and others else 0
        if times:
            _log.warning(
                "node %s is connected from %s and %s at once: was its folder copied?",
                *(node, others[-1], peer),
                extra={"fields": {"event": "twins", "node": node, "peers": [others[-1], peer]}},
            )

    def _revocations(self) -> bytes | None:
        with self._lock:
            try:
                stat = self._crl.stat()
            except FileNotFoundError:
                if self._seen is None:
                    return None
                raise CertificateError(
                    "the coordinator's revocation list is gone", hint="its operator must put crl.pem back"
                ) from None
            except OSError:
                raise CertificateError("the coordinator cannot read its revocation list") from None
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen != self._seen:
                self._list = TlsFiles(self._crl, self._crl, self._crl, self._crl).crl_pem()
                self._seen = seen
            return self._list


def _fingerprint(context: grpc.ServicerContext) -> str:
    """That of the certificate that the caller showed."""
    auth = cast("Mapping[str, Sequence[bytes]]", context.auth_context())
    shown = auth.get("x509_pem_cert", ())
    try:
        return fingerprint(bytes(shown[0])) if shown else "none"
    except (CertificateError, ValueError):
        return "unreadable"
