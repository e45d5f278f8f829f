"""Errors across the wire: an error of ours becomes a gRPC status, and a status the same error on the other side.

The status code is the error's ``grpc_status``, for tools that know only gRPC. The details are the one line, and after
``" | hint: "`` the hint. The trailing metadata entry ``fedsecure-error`` carries what a code cannot, the class name
(three classes share INVALID_ARGUMENT); only a name of the table below is believed.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

import grpc

from fedsecure import errors
from fedsecure.errors import CertificateError, FedSecureError, RemoteProtocolError, WireError
from fedsecure.text import printable
from fedsecure.wire.credentials import CALLERS_CERTIFICATE

__all__ = ["from_rpc_error", "to_status"]

#: Between the message and the hint in a status' details.
HINT_MARK: Final = " | hint: "
#: Trailing metadata key that names the class of the error.
CLASS_KEY: Final = "fedsecure-error"
#: Longer messages and hints are cut (characters): gRPC bounds the headers that they travel in.
MAX_MESSAGE: Final = 800
MAX_HINT: Final = 200

#: What a peer may raise here, by name. A LocalProtocolError of the peer's is the peer's fault: remote, seen from here;
#: and what is wrong with its store says nothing about ours.
_CLASSES: Final[dict[str, type[FedSecureError]]] = {
    name: getattr(errors, name)
    for name in errors.__all__
    if isinstance(getattr(errors, name), type) and name not in ("FedSecureError", "LocalProtocolError", "StoreError")
}

#: gRPC's own verdicts, when no error of ours is behind them: what they mean to the one who reads them.
_TRANSPORT: Final[dict[grpc.StatusCode, tuple[type[FedSecureError], str, str]]] = {
    grpc.StatusCode.UNAVAILABLE: (WireError, "cannot be reached", "is it running, and are address and port right?"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (WireError, "did not answer in time", "it is tried again"),
    grpc.StatusCode.CANCELLED: (WireError, "ended the call", "it is tried again"),
    grpc.StatusCode.UNAUTHENTICATED: (CertificateError, "refused this identity", "check the certificate"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (WireError, "refused a message that is too large, or is too busy", ""),
    grpc.StatusCode.UNIMPLEMENTED: (RemoteProtocolError, "does not know this call", "versions of fedsecure differ"),
}


def to_status(context: grpc.ServicerContext, error: FedSecureError) -> NoReturn:
    """End the call with ``error``: its status, ``message | hint: …`` as details, its class as metadata."""
    code = getattr(grpc.StatusCode, error.grpc_status)
    text = str(error)[:MAX_MESSAGE] + (f"{HINT_MARK}{error.hint[:MAX_HINT]}" if error.hint else "")
    context.set_trailing_metadata(((CLASS_KEY, type(error).__name__),))
    context.abort(code, text)
    raise AssertionError("abort returned")  # it always raises


def from_rpc_error(exc: grpc.RpcError, *, peer: str = "coordinator") -> FedSecureError:
    """The error that ``to_status`` sent, or, when gRPC itself gave up, a ``WireError`` or the like in plain words.

    ``peer`` names the other side in messages. Returns, never raises: ``raise from_rpc_error(exc) from None``.
    """
    code, details = _code(exc), _details(exc)
    message, _, hint = details.partition(HINT_MARK)
    cls = _CLASSES.get(_error_name(exc))
    if cls is not None and message:
        return cls(_seen_from_here(message, peer) if cls is CertificateError else message, hint=hint)
    if code in _TRANSPORT:
        cls, verdict, advice = _TRANSPORT[code]
        return cls(f"{peer} {verdict}" + (f" ({message})" if message else ""), hint=hint or advice)
    name = code.name if code is not None else "no status"
    return RemoteProtocolError(f"{peer} failed: {name}" + (f": {message}" if message else ""), hint=hint)


def _seen_from_here(message: str, peer: str) -> str:
    """What the peer says of "the caller", said of ourselves. Its address for us says nothing to anybody here."""
    fault = message.removeprefix(f"{CALLERS_CERTIFICATE}: ")
    return message if fault == message else f"our own certificate is refused by the {peer}: {fault}"


def _code(exc: grpc.RpcError) -> grpc.StatusCode | None:
    code = exc.code() if callable(getattr(exc, "code", None)) else None
    return code if isinstance(code, grpc.StatusCode) else None


def _details(exc: grpc.RpcError) -> str:
    details = exc.details() if callable(getattr(exc, "details", None)) else None
    return printable(str(details or ""))[: 2 * MAX_MESSAGE]


def _error_name(exc: grpc.RpcError) -> str:
    metadata: Any = exc.trailing_metadata() if callable(getattr(exc, "trailing_metadata", None)) else None
    for key, value in metadata or ():
        if key == CLASS_KEY:
            return value if isinstance(value, str) else bytes(value).decode("ascii", "replace")
    return ""
