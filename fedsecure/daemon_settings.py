"""What the settings of all participants share: the federation's name, the TLS files, the coordinator's address, and
where paths start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator

from fedsecure.config import PlacePath, Settings, load_toml, validate
from fedsecure.crypto.names import check_federation
from fedsecure.data.settings import anchored
from fedsecure.errors import ConfigError
from fedsecure.files import exists, is_folder, shown

__all__ = ["CoordinatorAddress", "FederationName", "TlsSettings", "anchored_tls", "load_from_folder"]

S = TypeVar("S", bound=Settings)
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


#: Where the coordinator listens, as its participants dial it.
CoordinatorAddress = Annotated[str, AfterValidator(_address)]
#: The trust domain of every certificate of a federation.
FederationName = Annotated[str, AfterValidator(_federation)]


class TlsSettings(Settings):
    """Files of this side's certificate. `crl`, the list of revoked certificates, must be there when it is named; left
    out, `crl.pem` beside the certificate counts from the moment it is there."""

    key: PlacePath = Path("tls.key")
    cert: PlacePath = Path("tls.crt")
    ca: PlacePath = Path("ca.crt")
    crl: PlacePath | None = None

    @property
    def crl_place(self) -> Path:
        """Where the list of revoked certificates is, or will be."""
        return self.crl or self.cert.parent / "crl.pem"


def load_from_folder(model: type[S], folder: Path, name: str, *, hint: str) -> tuple[S, Path]:
    """Read ``folder/name``; returns the settings and the file's own folder, absolute: where relative paths start.

    Raises ``ConfigError`` naming the file, with ``hint`` when it is not there, else the key and what is allowed.
    """
    path = folder / name
    if exists(folder, ConfigError) and not is_folder(folder, ConfigError):
        raise ConfigError(f"{shown(folder)}: is a file, not a folder", hint=f"give the folder of {name}")
    if not exists(path, ConfigError):
        raise ConfigError(f"{path}: no such file", hint=hint)
    return validate(model, load_toml(path), shown(path)), path.resolve().parent


def anchored_tls(tls: TlsSettings, folder: Path, where: str) -> TlsSettings:
    """The TLS files made absolute. A list of revoked certificates that is there now is named from now on, so that it
    may not vanish. Raises ``ConfigError`` for a named one that is not there; ``where`` names the settings file."""
    key, cert, ca = (anchored(path, folder) for path in (tls.key, tls.cert, tls.ca))
    found = TlsSettings(key=key, cert=cert, ca=ca, crl=None if tls.crl is None else anchored(tls.crl, folder))
    there = exists(found.crl_place, ConfigError)
    if tls.crl is not None and not there:
        raise ConfigError(
            f"{where}: tls.crl: {found.crl} does not exist",
            hint="ask the consortium's CA for its crl.pem, or leave tls.crl out",
        )
    return found.model_copy(update={"crl": found.crl_place if there else None})
