"""Reading TOML configuration strictly: every fault names the file, the key and what is allowed, in one line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fedsecure.errors import ConfigError
from fedsecure.files import shown
from fedsecure.toml_file import load_toml

__all__ = ["NODE_ID", "NodeId", "PlacePath", "Settings", "canonical_json", "load_toml", "named_pattern", "validate"]


class Settings(BaseModel):
    """Base of every configuration table: frozen, strict, no unknown keys, no NaN or infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


S = TypeVar("S", bound=BaseModel)


def canonical_json(model: BaseModel, *, exclude: set[str] | None = None) -> bytes:
    """The one serialisation that digests are taken over: sorted keys, no spaces, UTF-8, no NaN."""
    data = model.model_dump(mode="json", exclude=exclude)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def validate(model: type[S], raw: Mapping[str, Any] | bytes, where: str) -> S:
    """Check ``raw`` (a parsed TOML table, or JSON bytes) against ``model``; all faults in one ``ConfigError`` line."""
    try:
        text = raw if isinstance(raw, bytes) else json.dumps(raw)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}", hint="use strings, numbers, true/false, lists and tables") from None
    try:
        return model.model_validate_json(text)
    except pydantic.ValidationError as error:
        items = error.errors(include_url=False)
        faults = _distinct(_describe(item, model) for item in items if not _follows_from_another(item, items))
        hint = (
            "start from an example: `fedsecure plan example`, or the example file beside it" if len(faults) > 3 else ""
        )
        raise ConfigError(f"{where}: " + "; ".join(faults), hint=hint) from None


def _follows_from_another(item: Any, items: list[Any]) -> bool:
    """Whether a list is "too short" only because its entries, which have faults of their own, were not counted."""
    deeper = [other for other in items if len(other["loc"]) > len(item["loc"])]
    return item["type"] == "too_short" and any(o["loc"][: len(item["loc"])] == item["loc"] for o in deeper)


#: pattern -> the same in words, for messages.
_PATTERN_WORDS: dict[str, str] = {}


def named_pattern(pattern: str, words: str) -> str:
    """``pattern``, after noting what it means in words: people are shown those, never the expression.

    The same expression may mean several things. All but the first get an empty group in front, which matches nothing
    more and nothing less, so that each keeps its own words whoever was imported first.
    """
    while _PATTERN_WORDS.setdefault(pattern, words) != words:
        pattern = "(?:)" + pattern
    return pattern


NODE_ID = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
NODE_ID_WORDS = "a node id: lower-case letters, digits and inner hyphens, at most 63"
NodeId = Annotated[str, Field(pattern=named_pattern(NODE_ID, NODE_ID_WORDS))]


def _place(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("a path holds no NUL character")
    try:
        path.expanduser()
    except RuntimeError:
        raise ValueError(f"{shown(path)}: no such home folder (write the path without ~)") from None
    return path


#: A path as a file names it: relative, absolute, or with ``~`` for a home folder that there is.
PlacePath = Annotated[Path, AfterValidator(_place)]


def _distinct(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _describe(item: Any, model: type[BaseModel]) -> str:
    """One fault of pydantic's as ``key: what is wrong (allowed: …)``."""
    location = item["loc"][:-2] if item["loc"][-1:] == ("[key]",) else item["loc"]
    key = shown(".".join(_without_tags(model, location))) or "(top level)"
    kind, ctx = item["type"], item.get("ctx", {})
    given = repr(item.get("input"))
    given = given if len(given) <= 60 else given[:57] + "…"
    if kind == "extra_forbidden":
        known = _known_keys(model, item["loc"][:-1])
        return f"{key}: unknown key" + (f" (known: {', '.join(known)})" if known else "")
    if kind == "missing":
        return f"{key}: missing"
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        sign = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}[kind]
        limit = next(iter(ctx.values()))
        return f"{key}: {given} is out of range (allowed: {sign} {limit})"
    if kind == "literal_error":
        return f"{key}: {given} is not one of {ctx.get('expected')}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        discriminator = str(ctx.get("discriminator", "")).strip("'")
        tags = ctx.get("expected_tags") or _tags(model, item["loc"], discriminator)
        expected = f" (allowed: {tags})" if tags else ""
        if kind == "union_tag_not_found":
            return f"{key}: needs the key {discriminator}{expected}"
        return f"{key}.{discriminator}: {ctx.get('tag')!r} is not known{expected}"
    if kind == "string_pattern_mismatch":
        words = _PATTERN_WORDS.get(str(ctx.get("pattern")), "has characters that are not allowed here")
        return (
            f"{key}: {given} is not {words}" if str(ctx.get("pattern")) in _PATTERN_WORDS else f"{key}: {given} {words}"
        )
    if kind in ("too_short", "too_long", "string_too_short", "string_too_long"):
        word = "characters" if kind.startswith("string") else "entries"
        limit = ctx.get("min_length", ctx.get("max_length"))
        amount, sign = ("few", ">=") if "short" in kind else ("many", "<=")
        return f"{key}: has too {amount} {word} (allowed: {sign} {limit})"
    if kind == "value_error":
        return f"{key}: {ctx.get('error')}" if item["loc"] else str(ctx.get("error"))
    message = str(item["msg"]).removeprefix("Input should be ").removeprefix("a valid ")
    return (
        f"{key}: {given} should be {message}"
        if str(item["msg"]).startswith("Input should")
        else f"{key}: {item['msg']}"
    )


def _tags(model: type[BaseModel], location: tuple[int | str, ...], discriminator: str) -> str:
    """The values that tell the members of the union at ``location`` apart, as pydantic lists them."""
    current: Any = model
    for part in location:
        current = _inner(current, part) if isinstance(part, str) else current
    members = current if isinstance(current, list) else []
    fields = [m.model_fields[discriminator] for m in members if discriminator in m.model_fields]
    return ", ".join(repr(tag) for f in fields for tag in getattr(f.annotation, "__args__", ()))


def _known_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys of the table at ``location`` inside ``model``, as far as its annotations show them."""
    current: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        found = _inner(current, str(part))
        if found is None:
            return []
        current = found
    fields = getattr(current, "model_fields", None)
    return sorted(fields) if fields else []


class _Keyed(list[Any]):
    """The models among the values of a table whose keys are free."""


def _without_tags(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The key as the file spells it: pydantic puts the tag of a union member (``method.fedaf.ipc``) between."""
    current: Any = model
    kept: list[str] = []
    for part in location:
        tag = isinstance(current, list) and not isinstance(current, _Keyed) and isinstance(part, str)
        if not tag:
            kept.append(str(part))
        if isinstance(part, str):
            current = _inner(current, part)
    return kept


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for arg in getattr(annotation, "__args__", ()) for m in _models_in(arg)]


def _inner(current: Any, part: str) -> Any:
    """Step into field ``part``; or, when ``part`` is the tag of a union, into the member with that tag."""
    if isinstance(current, _Keyed):
        return current[0] if len(current) == 1 else list(current)
    fields = getattr(current, "model_fields", None)
    if fields and part in fields:
        models = _models_in(fields[part].annotation)
        if getattr(fields[part].annotation, "__origin__", None) is dict:
            return _Keyed(models)
        return models[0] if len(models) == 1 else models
    if isinstance(current, list):
        for member in current:
            if any(part in getattr(f.annotation, "__args__", ()) for f in member.model_fields.values()):
                return member
    return None
