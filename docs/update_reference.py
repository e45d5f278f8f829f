"""Write docs/reference.md, every key of every file, from the settings classes; ``--check`` fails on drift."""

from __future__ import annotations

import argparse
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from fedsecure.analyst.settings import AnalystSettings
from fedsecure.data import settings as data
from fedsecure.plan import Plan
from fedsecure.plan.presets import PRESETS
from fedsecure.policy import Policy
from fedsecure_coordinator.settings import CoordinatorSettings
from fedsecure_node.settings import NodeSettings

PAGE = Path(__file__).resolve().parent / "reference.md"
INTRO = """\
# Every key of every file

Written by `python docs/update_reference.py` from the classes that read the files; a test fails when it is out of
date. All files are TOML and read strictly: an unknown key, a wrong type or a value out of range is one line that names
the file, the key and what is allowed.
"""


def _bounds(metadata: tuple[Any, ...], unit: str = "characters") -> list[str]:
    """Range, length (in ``unit``) and pattern that ``metadata`` asks for, in words."""
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "pattern": "matching"}
    found, length = [], {}
    for item in (part for whole in metadata for part in (whole, *getattr(whole, "metadata", ()))):
        for name, sign in signs.items():
            value = getattr(item, name, None)
            if value is not None:
                found.append(f"{sign} `{value}`" if name == "pattern" else f"{sign} {value}")
        for name in ("min_length", "max_length"):
            if getattr(item, name, None) is not None:
                length[name] = getattr(item, name)
    return [*_length(length.get("min_length", 0), length.get("max_length"), unit), *found]


def _length(least: int, most: int | None, unit: str) -> list[str]:
    """``1 to 200 characters``, ``at most 1000 entries``, ``1 character``; nothing when there is no bound."""
    if most is None:
        return [f"at least {least} {unit}"] if least else []
    if least == most:
        return [f"{most} {unit.removesuffix('s') if most == 1 else unit}"]
    return [f"{least} to {most} {unit}" if least else f"at most {most} {unit}"]


def _allowed(annotation: Any, metadata: tuple[Any, ...] = ()) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _allowed(arguments[0], (*arguments[1:], *metadata))
    if origin is typing.Literal:
        return " or ".join(f"`{a!r}`".replace("'", '"') for a in arguments)
    if origin in (typing.Union, types.UnionType):
        parts = [_allowed(a) for a in arguments if a is not type(None)]
        return ", ".join([" or ".join(parts), *_bounds(metadata)])
    if origin is tuple:
        return _list(arguments, metadata)
    if origin is dict:
        return ", ".join([f"table of {_allowed(arguments[1])}", *_bounds(metadata, "entries")])
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    names = {int: "integer", float: "number", str: "text", bool: "true or false", Path: "path", Any: "any value"}
    return ", ".join([names.get(annotation, getattr(annotation, "__name__", str(annotation))), *_bounds(metadata)])


def _list(arguments: tuple[Any, ...], metadata: tuple[Any, ...]) -> str:
    """A list of any length whose entries are alike, or one of fixed length whose entries each have their own range."""
    if arguments[-1] is Ellipsis:
        entry = _allowed(arguments[0])
        length = _bounds(metadata, "entries")
        inner = f" of {entry}" if ", " not in entry else f", each {entry}"
        return ", ".join(["list", *length]) + inner if length or ", " in entry else f"list of {entry}"
    return f"list of {len(arguments)}: " + "; ".join(_allowed(a) for a in arguments)


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.default if field.default is not PydanticUndefined else field.default_factory()
    if value is None:
        return "left out"
    if isinstance(value, BaseModel):
        return "its own defaults"
    if isinstance(value, tuple):
        value = list(value)
    text = str(value) if isinstance(value, Path) else repr(value).replace("'", '"')
    return f"`{ {'True': 'true', 'False': 'false'}.get(text, text) }`"


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)


def _section(model: type[BaseModel], level: str, done: set[type]) -> Iterator[str]:
    if model in done:
        return
    done.add(model)
    text = inspect.cleandoc(model.__doc__ or "").replace("``", "`")
    yield f"{level} {model.__name__}\n\n{text}\n\n| key | allowed | default |\n|---|---|---|"
    for name, field in model.model_fields.items():
        allowed = _allowed(field.annotation, tuple(field.metadata)).replace("|", "\\|")
        yield f"| `{name}` | {allowed} | {_default(field)} |"
    yield ""
    for field in model.model_fields.values():
        for inner in _models(field.annotation):
            yield from _section(inner, "###", done)


def page() -> str:
    """The whole page."""
    done: set[type] = set()
    lines = [INTRO]
    for title, model in (
        ("A plan", Plan), ("`[simulation]` of a plan file", data.Simulation), ("policy.toml", Policy),
        ("node.toml", NodeSettings), ("coordinator.toml", CoordinatorSettings),
        ("analyst.toml", AnalystSettings),
    ):  # fmt: skip
        lines += [f"## {title}\n", *_section(model, "###", done)]
    lines += ["## Presets\n", "What `preset` lays under the keys that the plan file does not name.\n"]
    for preset, methods in PRESETS.items():
        for method, values in methods.items():
            said = ", ".join(f"`{k} = {v!r}`".replace("'", '"') for k, v in values.items()) or "the defaults above"
            lines.append(f"- `{preset}`, `{method}`: {said}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    new = page()
    if not parser.parse_args().check:
        PAGE.write_text(new, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") != new:
        sys.stderr.write("docs/reference.md is out of date; run `python docs/update_reference.py`\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
