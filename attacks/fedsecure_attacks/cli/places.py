"""Where a command writes is looked at before anything is computed: nothing is lost at the end, and no input or device
is replaced."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedsecure.errors import ConfigError
from fedsecure.files import faults, require_place, shown

__all__ = ["require_file_place", "require_places", "require_replaceable"]

Inputs = Mapping[str, Path | None]


def require_file_place(option: str, place: Path, inputs: Inputs, *, out: Path | None = None) -> None:
    """Raise ``ConfigError`` unless ``place`` can be written: in a folder that is there, or in ``out``, which will be;
    and itself nothing, or a regular file that is none of ``inputs`` (what they are called -> path)."""
    require_replaceable(option, place, inputs)
    if out is not None and place.absolute().parent == out.absolute():
        return
    with faults(place, "written", ConfigError):
        parent = place.parent
        if not parent.is_dir():
            number = errno.ENOTDIR if parent.exists() else errno.ENOENT
            raise OSError(number, os.strerror(number))
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def require_replaceable(option: str, place: Path, inputs: Inputs) -> None:
    """Raise ``ConfigError`` where something is at ``place`` that may not be replaced: one of ``inputs``, by whatever
    name, or no regular file."""
    with faults(place, "looked at", ConfigError):
        if not place.exists():
            return
        found = place.stat()
        same = [name for name, given in inputs.items() if given is not None and _is_same(found, given)]
    if same:
        raise ConfigError(
            f"{option} {shown(place)}: is {same[0]} itself, which would be replaced", hint="name another file"
        )
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise ConfigError(f"{option} {shown(place)}: is {kind}", hint="name a file, which is made or replaced")


def require_places(
    inputs: Inputs,
    *,
    out: Path | None = None,
    names: Iterable[str] = (),
    files: Mapping[str, Path | None] | None = None,
    cache: Path | None = None,
) -> None:
    """Raise ``ConfigError`` unless all can be written: the folder ``out``, in which files of ``names`` may be replaced;
    ``files``, by option; the folder ``cache``. ``inputs`` are never replaced."""
    within = [] if out is None else [out / name for name in names]
    for folder in (out, cache):
        if folder is not None:
            require_place(folder, error=ConfigError)
    for place in within:
        require_replaceable("--out:", place, inputs)
    for option, given in (files or {}).items():
        if given is not None:
            require_file_place(option, given, inputs, out=out)
            if given.resolve() in {place.resolve() for place in within}:
                raise ConfigError(
                    f"{option} {shown(given)}: is a file of the report in --out", hint="name another file"
                )


def _is_same(found: os.stat_result, given: Path) -> bool:
    try:
        return os.path.samestat(found, given.stat())
    except (OSError, ValueError):  # a fault of the input's own, which is told when it is read
        return False
