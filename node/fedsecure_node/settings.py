"""``node.toml``: who this node is, whom it dials, where its records and its store lie."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from fedsecure.compute import ComputeSettings
from fedsecure.config import PlacePath, Settings
from fedsecure.daemon_settings import CoordinatorAddress, FederationName, TlsSettings, anchored_tls, load_from_folder
from fedsecure.data.settings import AnySource, anchored, anchored_source
from fedsecure.plan import NodeId

__all__ = ["CONFIG_NAME", "LogSettings", "NodeSettings", "PrivacyPlaces", "load_settings"]

#: Name of the configuration file inside the node's folder.
CONFIG_NAME = "node.toml"
#: Name of the privacy ledger inside the store.
LEDGER_NAME = "ledger.db"


class LogSettings(Settings):
    """How the daemon reports. ``auto``: a live view on a terminal, plain lines elsewhere."""

    format: Literal["auto", "plain", "json"] = "auto"


class PrivacyPlaces(Settings):
    """Where the privacy ledger lies; left out, ``ledger.db`` in the store. Nodes on one machine that hold some of the
    same records name the same file here, on a disk of that machine: one data set has one budget."""

    ledger: PlacePath | None = None


class NodeSettings(Settings):
    """The whole file. Relative paths are taken from the file's own folder (``load_settings`` makes them absolute).
    ``holdout``: records of the same population, beside ``data``, that never take part in a run: the membership audit
    compares with them."""

    format: Literal[1]
    node: NodeId
    federation: FederationName
    coordinator: CoordinatorAddress
    store: PlacePath = Path("store")
    policy: PlacePath = Path("policy.toml")
    identity: PlacePath = Path("identity.key")
    tls: TlsSettings = TlsSettings()
    data: AnySource
    holdout: AnySource | None = None
    compute: ComputeSettings = ComputeSettings()
    log: LogSettings = LogSettings()
    privacy: PrivacyPlaces = PrivacyPlaces()

    @property
    def ledger(self) -> Path:
        """The privacy ledger's file."""
        return self.privacy.ledger or self.store / LEDGER_NAME

    @model_validator(mode="after")
    def _own_store(self) -> Self:
        if self.store == Path():
            raise ValueError("store: needs a folder of its own")
        return self


def load_settings(folder: Path) -> NodeSettings:
    """Read ``folder/node.toml`` with every path made absolute.

    Raises ``ConfigError`` naming the file, the key and what is allowed, or a named CRL file that is not there.
    """
    settings, home = load_from_folder(
        NodeSettings,
        folder,
        CONFIG_NAME,
        hint="make a node with: fedsecure node init NODE_ID --federation F --coordinator HOST:PORT --dir DIR",
    )
    ledger = settings.privacy.ledger
    return settings.model_copy(
        update={
            "privacy": PrivacyPlaces(ledger=anchored(ledger, home) if ledger else None),
            "store": anchored(settings.store, home),
            "policy": anchored(settings.policy, home),
            "identity": anchored(settings.identity, home),
            "tls": anchored_tls(settings.tls, home, str(folder / CONFIG_NAME)),
            "data": anchored_source(settings.data, home),
            "holdout": anchored_source(settings.holdout, home) if settings.holdout else None,
        }
    )
