"""Dialling out: diagnose by name what could be wrong, open the mutual-TLS channel, greet, compare clocks."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime

import grpc

from fedsecure.errors import ConfigError
from fedsecure.files import exists
from fedsecure.wire.credentials import TlsFiles, channel_credentials
from fedsecure_node.link.client import CHANNEL_OPTIONS, CoordinatorClient
from fedsecure_node.link.preflight import clock_skew, examine
from fedsecure_node.log.records import Destination
from fedsecure_node.settings import NodeSettings
from fedsecure_node.store.store import now_ms

__all__ = ["Link", "connect", "tls_files"]

#: How long the diagnosis of a connection may take (seconds).
DIAGNOSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Link:
    """An open connection. ``clock_ms``: the coordinator's clock minus ours."""

    client: CoordinatorClient
    destination: Destination
    clock_ms: int
    max_wait_ms: int


def tls_files(settings: NodeSettings) -> TlsFiles:
    """The files of the node's certificate; a ``crl.pem`` that was put beside the certificate since the start counts."""
    tls = settings.tls
    late = tls.crl_place if exists(tls.crl_place, ConfigError) else None
    return TlsFiles(tls.key, tls.cert, tls.ca, tls.crl or late)


def connect(settings: NodeSettings, stop: threading.Event) -> Link:
    """Connect and greet. Raises ``WireError`` when trying again may help; ``CertificateError`` and the like name a
    cause that will not go away by itself."""
    files = tls_files(settings)
    now = datetime.now(UTC)
    peer = examine(settings.coordinator, files, federation=settings.federation, now=now, timeout=DIAGNOSE_S)
    credentials = channel_credentials(files, now=now, pinned=peer.certificate)  # the very peer that was examined
    channel = grpc.secure_channel(settings.coordinator, credentials, options=CHANNEL_OPTIONS)
    client = CoordinatorClient(channel, settings.node, stop)
    try:
        greeting = client.hello(federation=settings.federation, now_ms=now_ms)
        local = now_ms()
        clock_skew(local, local + greeting.clock_ms)
    except BaseException:
        client.close()
        raise
    destination = Destination(settings.coordinator, peer.identity.fingerprint)
    return Link(client, destination, greeting.clock_ms, greeting.max_wait_ms)
