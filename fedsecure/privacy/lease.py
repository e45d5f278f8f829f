"""One process at a time works on a data set: what the operating system holds for it, and frees however it ends.

Two locks, since two daemons may have a ledger each: a file beside the ledger, and on Linux a name in the abstract
namespace of unix sockets (unix(7)), which is the machine's, not a folder's. Nothing ever connects to it. Containers
with network namespaces of their own do not see each other's.
"""

from __future__ import annotations

import errno
import hashlib
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsecure.errors import LocalProtocolError, StoreError
from fedsecure.locks import sole_lock

__all__ = ["hold_data_set"]

#: What begins each name in the abstract namespace.
NAMESPACE = "fedsecure"


@contextmanager
def hold_data_set(ledger: Path, data_set: str) -> Iterator[None]:
    """Hold ``data_set``, which the ledger at this path charges. Raises ``LocalProtocolError`` when another process has
    it, ``StoreError`` when it cannot be held."""
    beside = ledger.with_name(f"{ledger.name}.{data_set[:16]}.lease")
    with sole_lock(beside, lambda process: _taken(data_set, process)), _name(data_set):
        yield


def _taken(data_set: str, process: str = "") -> LocalProtocolError:
    who = f" (process {process})" if process else ""
    return LocalProtocolError(
        f"data set {data_set[:12]}: another daemon{who} on this machine computes on it",
        hint="stop it first, or give each node records of its own: one data set has one budget",
    )


@contextmanager
def _name(data_set: str) -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    name = hashlib.sha256(f"fedsecure/data-set-lease/v1/{data_set}".encode()).hexdigest()
    try:
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    except OSError as fault:
        raise _unable(data_set, fault) from None
    with holder:
        try:
            holder.bind(f"\0{NAMESPACE}-{name}")
        except OSError as fault:
            if fault.errno == errno.EADDRINUSE:
                raise _taken(data_set) from None
            raise _unable(data_set, fault) from None
        yield


def _unable(data_set: str, fault: OSError) -> StoreError:
    return StoreError(
        f"data set {data_set[:12]}: cannot be held for one daemon: {fault.strerror}",
        hint="let the daemon make unix sockets (systemd: AF_UNIX among RestrictAddressFamilies)",
    )
