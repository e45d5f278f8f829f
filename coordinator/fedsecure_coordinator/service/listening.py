"""Whether the coordinator can listen where its settings say, found out in words before gRPC tries."""

from __future__ import annotations

import errno
import socket

from fedsecure.errors import ConfigError
from fedsecure_coordinator.settings import split_listen

__all__ = ["check_listen"]

_REASONS = {
    errno.EADDRINUSE: ("the port is in use", "stop what listens there (ss -ltnp), or change listen"),
    errno.EADDRNOTAVAIL: ("this machine does not have the address", "listen on 0.0.0.0, [::] or one of its addresses"),
    errno.EACCES: ("no permission for this port", "use a port from 1024 on"),
}


def check_listen(listen: str) -> None:
    """Raise ``ConfigError`` saying why ``listen`` (``host:port``) cannot be listened on. Binds, and lets go again."""
    host, port = split_listen(listen)
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(
            f"listen {listen}: the host is not known: {error.strerror}", hint="use an address of this machine"
        ) from None
    for family, kind, protocol, _, address in places:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
        except OSError as error:
            reason, hint = _REASONS.get(error.errno or 0, (error.strerror or "refused by the system", ""))
            raise ConfigError(f"listen {listen}: cannot be listened on: {reason}", hint=hint) from None
