"""The part of JSON Schema (2020-12) that the report's own schema uses, so that no report is rendered that does not
follow it and nothing more needs to be installed: see json-schema.org/draft/2020-12/json-schema-validation."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["KEYWORDS", "faults", "report_schema"]

Schema = Mapping[str, Any]
#: Words of a schema that describe and do not check.
_DESCRIBING = {"$schema", "$id", "$defs", "title", "description"}


@cache
def report_schema() -> dict[str, Any]:
    """The published schema of a report."""
    found = json.loads(files("fedsecure_attacks.report").joinpath("schema.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def faults(value: Any, schema: Schema, root: Schema | None = None, at: str = "") -> Iterator[str]:
    """What in ``value`` does not follow ``schema``, one line each, outermost first; ``at`` names the place. Raises
    ``KeyError`` for a keyword of the schema that is not known here."""
    root = schema if root is None else root
    if "$ref" in schema:
        yield from faults(value, _resolved(schema["$ref"], root), root, at)
    for keyword, wanted in schema.items():
        if keyword == "$ref" or keyword in _DESCRIBING:
            continue
        for said in KEYWORDS[keyword](value, wanted, schema, root, at):
            yield said
            if keyword == "type":
                return


def _resolved(reference: str, root: Schema) -> Schema:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    assert isinstance(found, Mapping)
    return found


def _place(at: str, key: str | int) -> str:
    name = str(key) if len(str(key)) <= 60 else f"{str(key)[:60]}…"
    return f"{at}.{name}" if at else name


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int | float):
        whole = isinstance(value, int) or value.is_integer()
        return whole if kind == "integer" else kind == "number" and math.isfinite(value)
    names = {str: "string", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value)) == kind


Check = Callable[[Any, Any, Schema, Schema, str], Iterator[str]]


def _type(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if not any(_is(value, kind) for kind in kinds):
        yield f"{at or 'the report'}: not {' or '.join(kinds)}"


def _enum(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if not any(type(value) is type(known) and value == known for known in wanted):
        yield f"{at}: not one of {', '.join(map(str, wanted))}"


def _const(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    yield from _enum(value, [wanted], schema, root, at)


def _required(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{_place(at, name)}: missing" for name in wanted if name not in value)


def _properties(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name in wanted:
            if name in value:
                yield from faults(value[name], wanted[name], root, _place(at, name))


def _patterns(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            for pattern, part in wanted.items():
                if re.search(pattern, name):
                    yield from faults(inner, part, root, _place(at, name))


def _additional(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        patterns = schema.get("patternProperties", ())
        for name, inner in value.items():
            if name not in schema.get("properties", ()) and not any(re.search(p, name) for p in patterns):
                yield from faults(inner, wanted, root, _place(at, name))


def _names(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name in value:
            yield from faults(name, wanted, root, _place(at, name))


def _items(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from faults(inner, wanted, root, _place(at, index))


def _size(kind: type, words: str) -> Check:
    def check(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
        if isinstance(value, kind) and len(value) > wanted:  # type: ignore[arg-type]
            yield f"{at}: more than {wanted} {words}"

    return check


def _minimum(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if isinstance(value, int | float) and not isinstance(value, bool) and value < wanted:
        yield f"{at}: less than {wanted}"


def _maximum(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > wanted:
        yield f"{at}: more than {wanted}"


def _pattern(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> Iterator[str]:
    if isinstance(value, str) and not re.search(wanted, value):
        yield f"{at}: not of the form {wanted}"


#: keyword -> its check.
KEYWORDS: dict[str, Check] = {
    "type": _type, "enum": _enum, "const": _const, "required": _required, "properties": _properties,
    "patternProperties": _patterns, "additionalProperties": _additional, "propertyNames": _names, "items": _items,
    "maxItems": _size(list, "entries"), "maxLength": _size(str, "characters"), "maxProperties": _size(dict, "keys"),
    "minimum": _minimum, "maximum": _maximum, "pattern": _pattern,
}  # fmt: skip
