"""``analyst.toml``: who this analyst is, whom it dials, and how the records it asks about are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator

from fedsecure.config import Settings, validate
from fedsecure.crypto.enrolment import Enrolment, create_identity
from fedsecure.crypto.names import Identity
from fedsecure.daemon_settings import CoordinatorAddress, FederationName, TlsSettings, anchored_tls, load_from_folder
from fedsecure.data.settings import CsvSource
from fedsecure.data.unlabelled import Reading
from fedsecure.errors import ConfigError
from fedsecure.files import PUBLIC_FILE, exists, write_durably

__all__ = ["CONFIG_NAME", "AnalystSettings", "ImageSettings", "init_analyst", "load_settings"]

#: Name of the configuration file inside the analyst's folder.
CONFIG_NAME: Final = "analyst.toml"
#: What ``[table]`` may say: how a file is written, not which file, nor how classes are named.
_NOT_IN_TABLE: Final = ("kind", "path", "label", "classes", "ignore")
_EXAMPLE: Final = """\
# An analyst of a federation. Relative paths are taken from the folder of this file.
format = 1
analyst = {analyst}
federation = {federation}
coordinator = {coordinator}   # dialled out to; no port is opened here

[tls]
key = "tls.key"
cert = "tls.crt"
ca = "ca.crt"
# crl = "crl.pem"            # taken from beside the certificate when it is there

# How the pictures to ask about may differ from the plan's.
[images]
resize = false               # true: another size is resampled instead of refused
grey = false                 # true: colour is made grey where the plan has one channel, instead of refused

# How the tables to ask about are written, with the keys of a node's csv source.
# [table]
# columns = {{ "age" = "Age (years)" }}
# delimiter = ";"
# missing_values = {{ "cholesterol" = ["0"] }}
"""


def _name(text: str) -> str:
    try:
        return Identity("any", "analyst", text).name
    except ConfigError as error:
        raise ValueError(f"{error}; {error.hint}") from None


class ImageSettings(Settings):
    """The two changes to pictures that are allowed; both change the data, so both are off."""

    resize: bool = False
    grey: bool = False


class AnalystSettings(Settings):
    """The whole file. ``table`` has the keys of a node's csv source, but for the file itself and its classes."""

    format: Literal[1]
    analyst: Annotated[str, AfterValidator(_name)]
    federation: FederationName
    coordinator: CoordinatorAddress
    tls: TlsSettings = TlsSettings()
    images: ImageSettings = ImageSettings()
    table: dict[str, Any] = {}

    def reading(self, where: str = CONFIG_NAME) -> Reading:
        """How files are read. Raises ``ConfigError`` naming the key of ``[table]``; ``where`` names the file."""
        if wrong := [key for key in _NOT_IN_TABLE if key in self.table]:
            raise ConfigError(
                f"{where}: table.{wrong[0]}: unknown key", hint="files to ask about are named on the command line"
            )
        source = {"kind": "csv", "path": "table.csv", "label": "", **self.table}
        table = validate(CsvSource, source, f"{where}: table")
        return Reading(table, self.images.resize, self.images.grey, where)


def load_settings(folder: Path) -> AnalystSettings:
    """Read ``folder/analyst.toml`` with every path made absolute.

    Raises ``ConfigError`` naming the file, the key and what is allowed, or a named CRL file that is not there.
    """
    where = str(folder / CONFIG_NAME)
    settings, home = load_from_folder(
        AnalystSettings,
        folder,
        CONFIG_NAME,
        hint="make an analyst with: fedsecure analyst init --name N --federation F --coordinator HOST:PORT --dir DIR",
    )
    settings.reading(where)
    return settings.model_copy(update={"tls": anchored_tls(settings.tls, home, where)})


def init_analyst(folder: Path, *, name: str, federation: str, coordinator: str) -> Enrolment:
    """Make the keys, the request and ``analyst.toml`` in ``folder``. Overwrites nothing.

    Raises ``ConfigError`` for malformed names or an ``analyst.toml`` that is there, ``CertificateError`` for keys that
    are.
    """
    config = folder / CONFIG_NAME
    if exists(config, ConfigError) or config.is_symlink():
        raise ConfigError(f"{config}: exists already", hint="use another --dir, or move the old analyst away")
    said = {"analyst": name, "federation": federation, "coordinator": coordinator}
    validate(AnalystSettings, {"format": 1, **said}, "analyst init")
    made = create_identity(folder, federation=federation, role="analyst", name=name)
    text = _EXAMPLE.format(**{key: json.dumps(value, ensure_ascii=False) for key, value in said.items()})
    write_durably(config, text.encode(), mode=PUBLIC_FILE, error=ConfigError)
    return made
