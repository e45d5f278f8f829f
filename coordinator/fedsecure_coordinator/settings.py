"""``coordinator.toml``: where the coordinator listens, keeps its store, and what it allows a node to ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from fedsecure.config import Settings, load_toml, validate
from fedsecure.data.settings import AnySource

__all__ = ["CoordinatorSettings", "load_settings", "split_listen"]

CONFIG_NAME = "coordinator.toml"
#: Federation names are the trust domain of ``spiffe://`` URIs: lower-case DNS-like.
FEDERATION = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"


class TlsSettings(Settings):
    """Files of the coordinator's identity; a relative path is taken from the configuration file's folder.

    ``crl`` may be absent on disk as long as nothing was revoked; it is read again whenever it changes.
    """

    key: Path = Path("tls.key")
    cert: Path = Path("tls.crt")
    ca: Path = Path("ca.crt")
    crl: Path = Path("crl.pem")


class LimitSettings(Settings):
    """What a node may ask for.

    ``max_wait_ms``: the longest a long poll waits. ``chunk_bytes``: size of a piece of a transfer. ``max_nodes``: nodes
    served at once; it sizes the thread pool. ``clock_skew_s``: the most a node's clock may differ (seconds).
    """

    max_wait_ms: int = Field(20_000, ge=100, le=300_000)
    chunk_bytes: int = Field(1 << 20, ge=1024, le=3 << 20)
    max_nodes: int = Field(64, ge=1, le=1000)
    clock_skew_s: int = Field(300, ge=1, le=86_400)


class ComputeSettings(Settings):
    """Where and how the coordinator's own updates run: a torch device, and CPU threads (0: torch's choice)."""

    device: str = Field("cpu", pattern=r"^(cpu|cuda(:[0-9]{1,2})?|mps)$")
    threads: int = Field(0, ge=0, le=1024)


class CoordinatorSettings(Settings):
    """The whole file. ``evaluation``: public test records that the model is measured on after each round."""

    format: Literal[1]
    federation: str = Field(pattern=FEDERATION)
    listen: str
    store: Path = Path("store")
    tls: TlsSettings = TlsSettings()
    limits: LimitSettings = LimitSettings()
    compute: ComputeSettings = ComputeSettings()
    evaluation: AnySource | None = None

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        split_listen(value)
        return value


def split_listen(value: str) -> tuple[str, int]:
    """``host:port`` (``[::1]:8443`` for IPv6) as its parts. Raises ``ValueError`` in words."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise ValueError(f"{value!r} is not host:port, as in '0.0.0.0:8443' or '[::]:8443'")
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ValueError(f"{value!r} does not end in a port (allowed: 0..65535, 0 for any free one)")
    return host.strip("[]"), int(port)


def load_settings(folder: Path) -> CoordinatorSettings:
    """Read ``folder/coordinator.toml``; relative paths become paths under ``folder``.

    Raises ``ConfigError`` naming the file, the key and the allowed values.
    """
    path = folder / CONFIG_NAME
    settings = validate(CoordinatorSettings, load_toml(path), str(path))
    tls = settings.tls.model_copy(update={k: folder / p for k, p in settings.tls})
    source = settings.evaluation
    if source is not None and hasattr(source, "path"):
        source = source.model_copy(update={"path": folder / source.path})
    return settings.model_copy(update={"store": folder / settings.store, "tls": tls, "evaluation": source})
