"""The one error tree of the project.

Every error says in one line what is wrong and names the thing; ``hint`` says what to do next. Each class maps
to one exit code of the command line and to one gRPC status code (by name, so that this module imports nothing).
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "EXIT_CODES",
    "AuditError",
    "CertificateError",
    "ConfigError",
    "DataError",
    "FedSecureError",
    "LocalProtocolError",
    "NodeUnreachable",
    "PolicyError",
    "PrivacyBudgetExceeded",
    "ReleaseLogError",
    "RemoteProtocolError",
    "RunAborted",
    "SecAggError",
    "StoreError",
    "WireError",
]


class FedSecureError(Exception):
    """Root of the tree. ``str(error)`` is one line; ``error.hint`` is the next step, or ``""``."""

    exit_code: ClassVar[int] = 1
    grpc_status: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(" ".join(message.split()))
        self.hint = " ".join(hint.split())


class ConfigError(FedSecureError):
    """A configuration file, a plan or an option is wrong. Names the file, the key and the allowed values."""

    exit_code = 3
    grpc_status = "INVALID_ARGUMENT"


class PolicyError(FedSecureError):
    """The institution's policy does not allow it. Names the rule."""

    exit_code = 4
    grpc_status = "PERMISSION_DENIED"


class PrivacyBudgetExceeded(FedSecureError):
    """The data set's privacy budget cannot pay for it."""

    exit_code = 5
    grpc_status = "RESOURCE_EXHAUSTED"


class CertificateError(FedSecureError):
    """A certificate, key or identity is missing, wrong, expired, revoked or not who it claims to be."""

    exit_code = 6
    grpc_status = "UNAUTHENTICATED"


class WireError(FedSecureError):
    """The peer cannot be reached, or the connection broke. Trying again may help."""

    exit_code = 7
    grpc_status = "UNAVAILABLE"


class LocalProtocolError(FedSecureError):
    """This side was asked to do what the protocol does not allow now: the caller here is to blame."""

    exit_code = 8
    grpc_status = "INTERNAL"


class RemoteProtocolError(FedSecureError):
    """The peer sent what the protocol does not allow: the other side is to blame."""

    exit_code = 9
    grpc_status = "INVALID_ARGUMENT"


class SecAggError(FedSecureError):
    """A secure-aggregation session ended without a sum."""

    exit_code = 14
    grpc_status = "ABORTED"

    def __init__(self, message: str, *, hint: str = "", peer: str = "") -> None:
        """``peer``: the other node whose shares the one that raises this cannot open."""
        super().__init__(message, hint=hint)
        self.peer = peer


class DataError(FedSecureError):
    """Records, tensors or files of data are not what the plan's schema asks for. Names the tensor or file."""

    exit_code = 15
    grpc_status = "INVALID_ARGUMENT"


class AuditError(FedSecureError):
    """The membership audit forbids the release, or cannot be made."""

    exit_code = 16
    grpc_status = "FAILED_PRECONDITION"


class RunAborted(FedSecureError):
    """A run ended without a result; the message carries the reason and the missing nodes."""

    exit_code = 17
    grpc_status = "ABORTED"


class ReleaseLogError(FedSecureError):
    """The log of releases is damaged, cut short or was changed. Names the record."""

    exit_code = 18
    grpc_status = "FAILED_PRECONDITION"


class StoreError(FedSecureError):
    """The daemon's own files cannot be read or written: the disk, permissions, or damage. Names the file."""

    exit_code = 19
    grpc_status = "INTERNAL"


class NodeUnreachable(FedSecureError):
    """The node that a query is for does not answer: it is down, cut off, or does not serve the run."""

    exit_code = 20
    grpc_status = "UNAVAILABLE"


#: exit code -> (error class name, one-line meaning): the table that README prints.
EXIT_CODES: dict[int, tuple[str, str]] = {
    0: ("", "done"),
    1: ("", "a crash: a fault of ours, please report it"),
    2: ("", "the command line itself is wrong; of `audit`, a file or an option that is"),
    10: ("", "`audit`: the verdict is LEAK"),
    11: ("", "`audit`: the verdict is INCONCLUSIVE"),
    12: ("", "`audit`: the verdict is INVALID"),
    13: ("", "`audit`: the verdict is CONTRADICTS-ACCOUNTING"),
    **{
        cls.exit_code: (cls.__name__, (cls.__doc__ or "").split("\n")[0].rstrip("."))
        for cls in (
            ConfigError, PolicyError, PrivacyBudgetExceeded, CertificateError, WireError, LocalProtocolError,
            RemoteProtocolError, SecAggError, DataError, AuditError, RunAborted, ReleaseLogError, StoreError,
            NodeUnreachable,
        )
    },
}  # fmt: skip
