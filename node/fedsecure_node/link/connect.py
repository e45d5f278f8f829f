"""The node's connection: dial out, greet, compare clocks."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime

from fedsecure.crypto.certificates import PeerIdentity
from fedsecure.errors import ConfigError
from fedsecure.files import exists
from fedsecure.wire.clock import clock_skew
from fedsecure.wire.credentials import TlsFiles, own_participant
from fedsecure.wire.dialling import dial
from fedsecure_node.link.client import CoordinatorClient
from fedsecure_node.log.records import Destination
from fedsecure_node.settings import CONFIG_NAME, NodeSettings
from fedsecure_node.store.store import now_ms

__all__ = ["Link", "connect", "own_certificate", "tls_files"]


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


def own_certificate(settings: NodeSettings) -> PeerIdentity:
    """Our own certificate, in order and that of the node in ``node.toml``. Raises ``CertificateError`` or
    ``ConfigError``."""
    return own_participant(
        tls_files(settings),
        role="node",
        name=settings.node,
        federation=settings.federation,
        now=datetime.now(UTC),
        where=CONFIG_NAME,
    )


def connect(settings: NodeSettings, stop: threading.Event) -> Link:
    """Connect and greet. Raises ``WireError`` when trying again may help; ``CertificateError`` and the like name a
    cause that will not go away by itself."""
    own_certificate(settings)
    files = tls_files(settings)
    channel, peer = dial(settings.coordinator, files, federation=settings.federation, now=datetime.now(UTC))
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
