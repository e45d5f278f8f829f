"""A TOML file read within bounds: its size, its depth and its numbers, so that no file can stop who reads it.

What is read is a regular file, or one that the caller's own shell has opened already (``<(…)``, ``/dev/stdin``): a
named pipe, a device or a socket in the file system could block a reader for ever, and is refused unopened.
"""

from __future__ import annotations

import datetime
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from fedsecure.errors import ConfigError
from fedsecure.files import faults, shown

__all__ = ["MAX_CONFIG_BYTES", "MAX_DEPTH", "load_toml"]

#: No configuration file of ours comes near this size (bytes).
MAX_CONFIG_BYTES = 1 << 20
#: Tables and lists inside each other; the deepest setting of ours lies seven deep.
MAX_DEPTH = 32
#: What TOML 1.0 promises for whole numbers ("Integer").
MAX_INTEGER = 2**63
#: Files that the calling shell has opened: process substitution and standard input.
_OPENED = re.compile(r"/dev/stdin|/dev/fd/[0-9]+|/proc/self/fd/[0-9]+")
_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_NESTED = "has tables or lists nested too deeply"


def load_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file. Raises ``ConfigError`` naming the file, and the line or the key where it is not TOML as we
    read it."""
    where = shown(path)
    try:
        text = _read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: not UTF-8 at byte {error.start}", hint="save it as UTF-8") from None
    try:
        raw = tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{where}: {_NESTED} (allowed: {MAX_DEPTH})", hint="is it a configuration file?") from None
    except ValueError:  # int() of thousands of digits, or a date that is none
        raise ConfigError(
            f"{where}: not valid TOML: a number or a date is out of range", hint="is it a configuration file?"
        ) from None
    _check_values(raw, where)
    return raw


def _read(path: Path) -> bytes:
    """At most ``MAX_CONFIG_BYTES`` of the file. Raises ``ConfigError``."""
    where = shown(path)
    try:
        with faults(path, "read", ConfigError):
            opened = _OPENED.fullmatch(str(path)) is not None
            if not opened:
                _check_regular(_mode(path, where), where)  # before it is opened, which alone can move a device
            number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(number, "rb") as file:
                if opened:
                    os.set_blocking(number, True)
                else:
                    _check_regular(os.fstat(number).st_mode, where)
                data = file.read(MAX_CONFIG_BYTES + 1)
    except ConfigError as error:
        raise error if error.hint else ConfigError(str(error), hint="check the path and its permissions") from None
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{where}: larger than {MAX_CONFIG_BYTES} bytes, so not a configuration file")
    return data


def _mode(path: Path, where: str) -> int:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        raise ConfigError(f"{where}: no such file", hint="check the path") from None


def _check_regular(mode: int, where: str) -> None:
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{where}: is a directory, not a file", hint="name the file in it")
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise ConfigError(f"{where}: is {kind}, not a regular file", hint="name a regular file")


def _check_values(raw: dict[str, Any], where: str) -> None:
    """Raise ``ConfigError`` naming the first key whose value no setting of ours could have. Walks without recursion: a
    dotted key of thousands of parts is valid TOML."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), raw)]
    while waiting:
        key, value = waiting.pop()
        if len(key) > MAX_DEPTH:
            raise ConfigError(f"{where}: {_spelled(key[:3])}: {_NESTED} (allowed: {MAX_DEPTH})")
        if isinstance(value, dict):
            if any("\0" in name for name in value):
                raise ConfigError(f"{where}: {_spelled(key)}: a key holds a NUL character", hint="write it anew")
            waiting += [((*key, name), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*key, str(place)), inner) for place, inner in enumerate(value)]
        elif wrong := _fault(value):
            raise ConfigError(f"{where}: {_spelled(key)}: {wrong}", hint="strings, numbers, true/false, lists, tables")


def _fault(value: Any) -> str:
    if isinstance(value, datetime.date | datetime.time):
        return f"{value} is a date or a time, and no key of ours takes one (text stands in quotes)"
    if isinstance(value, str) and "\0" in value:
        return "holds a NUL character"
    if isinstance(value, int) and not -MAX_INTEGER <= value < MAX_INTEGER:
        return "a whole number of more than 64 bits"
    return ""


def _spelled(key: tuple[str, ...]) -> str:
    return shown(".".join(key)) or "(top level)"
