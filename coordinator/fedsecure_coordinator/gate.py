"""Who is calling: binds every message to the certificate of its connection, revocations included."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import grpc

from fedsecure.errors import CertificateError
from fedsecure.wire.credentials import TlsFiles, peer_identity

__all__ = ["Gate"]


class Gate:
    """Checks callers. ``now``: the time in UTC. ``crl`` may be absent on disk; it is read again whenever it changes.

    Once a list was read, its file may not vanish: nobody is let in until it is back.
    """

    def __init__(self, files: TlsFiles, *, federation: str, crl: Path, now: Callable[[], datetime]) -> None:
        self._federation, self._crl, self._now = federation, crl, now
        self._ca = files.ca_pem()
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._list: bytes | None = None
        self._revocations()

    def require_node(self, context: grpc.ServicerContext, node: str) -> None:
        """Raise ``CertificateError``, naming the reason, unless the caller is the node that it says it is."""
        identity = peer_identity(
            context, federation=self._federation, ca_pem=self._ca, crl_pem=self._revocations(), now=self._now()
        )
        identity.require("node", node)

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
