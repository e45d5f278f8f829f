"""``node.toml``: who this node is, whom it dials, where its records and its store lie."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fedsecure.config import Settings, load_toml, validate
from fedsecure.crypto.names import check_federation
from fedsecure.data.settings import AnySource
from fedsecure.errors import ConfigError
from fedsecure.plan import NodeId

__all__ = ["CONFIG_NAME", "ComputeSettings", "LogSettings", "NodeSettings", "TlsSettings", "load_settings"]

#: Name of the configuration file inside the node's folder.
CONFIG_NAME = "node.toml"
_ADDRESS = re.compile(r"^(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?):([0-9]{1,5})$")


def _federation(text: str) -> str:
    try:
        check_federation(text)
    except ConfigError as error:
        raise ValueError(f"{error}; {error.hint}") from None
    return text


def _address(text: str) -> str:
    found = _ADDRESS.match(text)
    if not found or not 1 <= int(found.group(1)) <= 65535:
        raise ValueError(f"{text[:80]!r} is not HOST:PORT (an IPv6 address in brackets)")
    return text


class TlsSettings(Settings):
    """Files of the node's certificate. ``crl`` left out: ``crl.pem`` beside this file if it is there."""

    key: Path = Path("tls.key")
    cert: Path = Path("tls.crt")
    ca: Path = Path("ca.crt")
    crl: Path | None = None


class ComputeSettings(Settings):
    """Where updates are computed. ``auto`` takes a GPU when there is one. ``threads`` left out: PyTorch's own
    choice."""

    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:[0-9]{1,3})?)$")
    threads: int | None = Field(None, ge=1, le=1024)


class LogSettings(Settings):
    """How the daemon reports. ``auto``: a live view on a terminal, plain lines elsewhere."""

    format: Literal["auto", "plain", "json"] = "auto"


class NodeSettings(Settings):
    """The whole file. Relative paths are taken from the file's own folder (``load_settings`` makes them absolute)."""

    format: Literal[1]
    node: NodeId
    federation: Annotated[str, AfterValidator(_federation)]
    coordinator: Annotated[str, AfterValidator(_address)]
    store: Path = Path("store")
    policy: Path = Path("policy.toml")
    identity: Path = Path("identity.key")
    tls: TlsSettings = TlsSettings()
    data: AnySource
    compute: ComputeSettings = ComputeSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _own_store(self) -> Self:
        if self.store == Path():
            raise ValueError("store: needs a folder of its own")
        return self


def load_settings(folder: Path) -> NodeSettings:
    """Read ``folder/node.toml`` with every path made absolute.

    Raises ``ConfigError`` naming the file, the key and what is allowed, or a named CRL file that is not there.
    """
    path = folder / CONFIG_NAME
    if not path.exists():
        raise ConfigError(
            f"{path}: no such file",
            hint="make a node with: fedsecure node init NODE_ID --federation F --coordinator HOST:PORT --dir DIR",
        )
    settings = validate(NodeSettings, load_toml(path), str(path))
    return _anchored(settings, path.resolve().parent)


def _anchored(settings: NodeSettings, folder: Path) -> NodeSettings:
    tls = settings.tls
    if tls.crl is None:
        crl = folder / "crl.pem"
        crl_path = crl if crl.exists() else None
    else:
        crl_path = folder / tls.crl.expanduser()
        if not crl_path.exists():
            raise ConfigError(
                f"{folder / CONFIG_NAME}: tls.crl: {crl_path} does not exist",
                hint="ask the consortium's CA for its crl.pem, or leave tls.crl out",
            )
    source = settings.data
    if hasattr(source, "path"):
        source = source.model_copy(update={"path": folder / source.path.expanduser()})
    return settings.model_copy(
        update={
            "store": folder / settings.store.expanduser(),
            "policy": folder / settings.policy.expanduser(),
            "identity": folder / settings.identity.expanduser(),
            "tls": tls.model_copy(
                update={
                    "key": folder / tls.key.expanduser(),
                    "cert": folder / tls.cert.expanduser(),
                    "ca": folder / tls.ca.expanduser(),
                    "crl": crl_path,
                }
            ),
            "data": source,
        }
    )
