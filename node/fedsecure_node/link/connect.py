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
from fedsecure_node.link.client import CoordinatorClient, Greeting
from fedsecure_node.link.clock import ClockOffset
from fedsecure_node.log.records import Destination
from fedsecure_node.settings import CONFIG_NAME, NodeSettings
from fedsecure_node.store.store import now_ms

__all__ = ["Link", "connect", "own_certificate", "tls_files"]


#: A greeting that took longer (milliseconds) is followed by another, up to so many in all.
LONG_MS, GREETINGS = 1000, 3


@dataclass(frozen=True, slots=True)
class Link:
    """An open connection. ``clock_ms``: the coordinator's clock minus ours, or up to a round trip less: a deadline by
    that clock never seems to have passed before it has."""

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
        greeting, clock = _greet(client, settings.federation)
        local = now_ms()
        clock_skew(local, local + clock.nearest)
    except BaseException:
        client.close()
        raise
    destination = Destination(settings.coordinator, peer.identity.fingerprint)
    return Link(client, destination, clock.low, greeting.max_wait_ms)


def _greet(client: CoordinatorClient, federation: str) -> tuple[Greeting, ClockOffset]:
    """Greet, and again where that took long: a coordinator that just started, or a machine that is busy, answers late,
    and how its clock stands is known no better than a round trip takes."""
    greeting = client.hello(federation=federation, now_ms=now_ms)
    clock = greeting.clock
    for _ in range(GREETINGS - 1):
        if clock.width <= LONG_MS:
            break
        clock = clock.narrowed(client.hello(federation=federation, now_ms=now_ms).clock)
    return greeting, clock
