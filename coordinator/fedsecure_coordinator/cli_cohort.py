"""``fedsecure coordinator cohort``: the manifests that nodes signed, kept for the daemon, which can change none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsecure.commands.output import JsonOption, emit_json, say

if TYPE_CHECKING:
    from fedsecure_coordinator.cohorts.manifests import Cohorts
    from fedsecure_coordinator.settings import CoordinatorSettings

__all__ = ["app"]

app = typer.Typer(
    name="cohort",
    help="The cohorts whose sums go under masks, as their nodes signed them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

DirOption = Annotated[Path, typer.Option("--dir", help="Folder of coordinator.toml.", file_okay=False, readable=False)]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A manifest, signed by all.", readable=False)]


@app.command()
def add(file: FileArgument, folder: DirOption = Path(), as_json: JsonOption = False) -> None:
    """Keep a manifest that all of its nodes signed. A daemon that is running takes it up at once."""
    from fedsecure.commands.manifests import manifest_json, say_manifest
    from fedsecure.files import private_folder
    from fedsecure.secagg.cohort.manifest import read_manifest

    settings, cohorts = _cohorts(folder)
    manifest = read_manifest(file)
    private_folder(settings.store)
    new = cohorts.add(manifest, federation=settings.federation)
    if as_json:
        emit_json({**manifest_json(manifest), "new": new})
        return
    say_manifest(manifest)
    say("added: nodes that trust it can be summed" if new else "known already")


@app.command()
def show(folder: DirOption = Path(), as_json: JsonOption = False) -> None:
    """Show the newest manifest of each cohort, from checked files."""
    from fedsecure.commands.manifests import manifest_json, say_manifest

    _, cohorts = _cohorts(folder)
    found = cohorts.newest()
    if as_json:
        emit_json({"cohorts": [manifest_json(manifest) for manifest in found]})
        return
    if not found:
        say("no cohort: nothing can be summed under masks")
    for manifest in found:
        say_manifest(manifest)


def _cohorts(folder: Path) -> tuple[CoordinatorSettings, Cohorts]:
    from fedsecure_coordinator.cohorts.manifests import FOLDER, Cohorts
    from fedsecure_coordinator.settings import load_settings

    settings = load_settings(folder)
    return settings, Cohorts(settings.store / FOLDER)
