"""``fedsecure node dp-plan``: what a private plan costs this node's records, before anything is decided."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsecure.commands.output import JsonOption, emit_json, note, say
from fedsecure_node.cli.options import DirOption

__all__ = ["dp_plan"]


def dp_plan(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="A plan file, or the digest of a plan that was offered.")],
    sigma: Annotated[
        list[float] | None,
        typer.Option(metavar="SIGMA", help="Show this noise too; repeat for more. Left out: some around the plan's."),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--epsilon", metavar="EPS", help="Show the sigma with which the whole plan would cost EPS.", min=0, max=1e6
        ),
    ] = None,
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Show the epsilon that a plan costs this node's records, at several sigma."""
    from fedsecure_node.cli.dp_table import dp_table
    from fedsecure_node.settings import load_settings

    found = dp_table(load_settings(folder), plan, sigma or (), target)
    if as_json:
        emit_json(found.to_json())
        return
    for line in found.lines():
        say(line)
    for line in found.refused:
        note(f"the policy refuses this plan: {line}")
