"""``coordinator.toml``: where the coordinator listens, keeps its store, and what it allows its callers to ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from fedsecure.compute import ComputeSettings
from fedsecure.config import PlacePath, Settings
from fedsecure.daemon_settings import FederationName, TlsSettings, anchored_tls, load_from_folder
from fedsecure.data.settings import AnySource, anchored, anchored_source

__all__ = ["CONFIG_NAME", "CoordinatorSettings", "load_settings", "split_listen"]

CONFIG_NAME = "coordinator.toml"


class LimitSettings(Settings):
    """What a node or an analyst may ask for.

    ``max_wait_ms``: the longest a long poll waits. ``chunk_bytes``: size of a piece of a transfer. ``max_nodes``: nodes
    served at once, and ``max_analysts``: analysts; they size the thread pool, each its own share of it.
    ``clock_skew_s``: the most a caller's clock may differ (seconds). ``leg_seconds``: how long a leg of a session under
    masks waits for its nodes (seconds), beside what its bytes take at 32 KiB/s. The first leg waits up to the plan's
    ``deadlines.exchange``, since a node may be computing for another run.
    """

    max_wait_ms: int = Field(20_000, ge=100, le=300_000)
    chunk_bytes: int = Field(1 << 20, ge=1024, le=3 << 20)
    max_nodes: int = Field(64, ge=1, le=1000)
    max_analysts: int = Field(8, ge=1, le=100)
    clock_skew_s: int = Field(300, ge=1, le=86_400)
    leg_seconds: int = Field(30, ge=1, le=3600)


class CoordinatorSettings(Settings):
    """The whole file. ``evaluation``: public test records that the model is measured on after each round."""

    format: Literal[1]
    federation: FederationName
    listen: str
    store: PlacePath = Path("store")
    tls: TlsSettings = TlsSettings()
    limits: LimitSettings = LimitSettings()
    compute: ComputeSettings = ComputeSettings()
    evaluation: AnySource | None = None

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        split_listen(value)
        return value

    @model_validator(mode="after")
    def _own_store(self) -> Self:
        if self.store == Path():
            raise ValueError("store: needs a folder of its own")
        return self


def split_listen(value: str) -> tuple[str, int]:
    """``host:port`` (``[::1]:8443`` for IPv6) as its parts. Raises ``ValueError`` in words."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise ValueError(f"{value!r} is not host:port, as in '0.0.0.0:8443' or '[::]:8443'")
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ValueError(f"{value!r} does not end in a port (allowed: 0..65535, 0 for any free one)")
    return host.strip("[]"), int(port)


def load_settings(folder: Path) -> CoordinatorSettings:
    """Read ``folder/coordinator.toml`` with every path made absolute.

    Raises ``ConfigError`` naming the file, the key and what is allowed, or a named CRL file that is not there.
    """
    settings, home = load_from_folder(
        CoordinatorSettings,
        folder,
        CONFIG_NAME,
        hint="make a coordinator with: fedsecure coordinator init --federation F --dns HOST --dir DIR",
    )
    source = settings.evaluation
    return settings.model_copy(
        update={
            "store": anchored(settings.store, home),
            "tls": anchored_tls(settings.tls, home, str(folder / CONFIG_NAME)),
            "evaluation": None if source is None else anchored_source(source, home),
        }
    )
