"""``fedsecure node queries``: who asked what of this node's models, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsecure.commands.output import JsonOption, emit_json, say
from fedsecure.text import counted
from fedsecure_node.cli.options import DirOption

if TYPE_CHECKING:
    from fedsecure_node.log.queries import Entry

__all__ = ["queries"]


def queries(folder: DirOption = Path(), as_json: JsonOption = False) -> None:
    """List every query that analysts sent, answered or refused, from the verified log."""
    from fedsecure_node.cli.releases import read_records
    from fedsecure_node.log.queries import entries

    found = list(entries(read_records(folder)))
    if as_json:
        emit_json({"queries": [entry.to_json() for entry in found]})
        return
    if not found:
        say("nobody asked")
    for entry in found:
        say(f"{entry.number:>5}  {entry.time[:19]}Z  {_line(entry)}")


def _line(entry: Entry) -> str:
    body = entry.body
    who = body["analyst"] if body.get("verified", True) else f"unverified ({body['analyst'] or 'any name'})"
    if not body["form"]:
        return f"{who}: {counted(body['unlogged'], 'more query', 'more queries')} refused: {body['reason']}"
    run = body["plan"]["name"] or body["plan"]["digest"][:12]
    line = f"{who}: {counted(body['records'], 'record')}, {run}, {body['form']}, "
    if entry.answered:
        return line + f"answered, guarantee {_label(body['guarantee'])}, {body['answer']['sha256'][:12]}"
    more = f" ({body['unlogged']} more before it)" if body["unlogged"] else ""
    return line + f"refused: {body['reason']}{more}"


def _label(guarantee: Mapping[str, Any]) -> str:
    label = str(guarantee["label"])
    return f"{label} ({guarantee['epsilon']:.4g}, {guarantee['delta']:.3g})" if label == "dp" else label
