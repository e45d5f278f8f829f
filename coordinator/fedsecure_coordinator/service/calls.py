"""What both services do with every call: check the first one, and turn what goes wrong into a status."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import grpc

from fedsecure import __version__
from fedsecure.errors import FedSecureError, RemoteProtocolError, StoreError, WireError
from fedsecure.wire.codec import PROTOCOL
from fedsecure.wire.status import to_status

__all__ = ["check_hello", "guarded"]

_log = logging.getLogger("fedsecure.coordinator")
T = TypeVar("T")


def check_hello(caller: str, protocol: int, skew_ms: int, allowed_ms: int) -> None:
    """Raise ``RemoteProtocolError`` for another protocol than ours, or a clock that differs too much.

    ``caller`` names them, as in ``node charite``. ``skew_ms``: their clock less ours (milliseconds).
    """
    if protocol != PROTOCOL:
        raise RemoteProtocolError(
            f"{caller} speaks protocol {protocol}, this coordinator {PROTOCOL}",
            hint=f"install the version of fedsecure that goes with the coordinator's {__version__}",
        )
    if abs(skew_ms) > allowed_ms:
        side = "ahead of" if skew_ms > 0 else "behind"
        raise RemoteProtocolError(
            f"clock skew: the clock of {caller} is {abs(skew_ms) / 1000:.0f} s {side} "
            f"the coordinator's (allowed: {allowed_ms / 1000:.0f} s)",
            hint="set both clocks, for instance by NTP",
        )


def guarded(context: grpc.ServicerContext, answer: Callable[[], T]) -> T:
    """The answer; an error of ours becomes a status, and one that is nobody's says so without details."""
    error: FedSecureError
    try:
        return answer()
    except StoreError as fault:
        _log.error("%s", fault)
        error = WireError("the coordinator's store is out of order", hint="its operator must read its log; try later")
    except FedSecureError as fault:
        error = fault
    except grpc.RpcError:  # the caller hung up
        raise
    except Exception:
        _log.exception("a call failed")
        error = FedSecureError("the coordinator failed", hint="its operator must read its log")
    return to_status(context, error)
