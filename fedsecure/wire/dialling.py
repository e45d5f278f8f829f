"""Dialling out to the coordinator: diagnose by name what could be wrong, then open the mutual-TLS channel."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import grpc

from fedsecure.wire.credentials import TlsFiles, channel_credentials
from fedsecure.wire.preflight import Finding, examine

__all__ = ["CHANNEL_OPTIONS", "DIAGNOSE_S", "MAX_MESSAGE", "dial"]

#: How long the diagnosis of a connection may take (seconds).
DIAGNOSE_S: Final = 10.0
#: No plan list, and no chunk, comes near this size (bytes).
MAX_MESSAGE: Final = 32 << 20
CHANNEL_OPTIONS: Final = [
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
]


def dial(address: str, files: TlsFiles, *, federation: str, now: datetime) -> tuple[grpc.Channel, Finding]:
    """A channel to the coordinator of ``federation`` at ``address``, pinned to the very peer that was examined.

    Raises ``WireError`` when trying again may help, and ``CertificateError`` naming what will not go away by itself
    (see ``fedsecure.wire.preflight``).
    """
    peer = examine(address, files, federation=federation, now=now, timeout=DIAGNOSE_S)
    credentials = channel_credentials(files, now=now, pinned=peer.certificate)
    return grpc.secure_channel(address, credentials, options=CHANNEL_OPTIONS), peer
