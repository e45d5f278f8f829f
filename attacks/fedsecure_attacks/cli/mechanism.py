"""``fedsecure audit mechanism`` and ``audit plan``: what a way to release tells, before anybody releases."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedsecure.commands.output import JsonOption, emit_json
from fedsecure.commands.places import path
from fedsecure.errors import AuditError, ConfigError, DataError
from fedsecure_attacks.cli.exits import AllowOption, conclude, usage
from fedsecure_attacks.cli.options import OutOption
from fedsecure_attacks.cli.places import require_places
from fedsecure_attacks.cli.sweep import SweepOptions, with_sweep_options

__all__ = ["mechanism", "plan"]


class _Backend(StrEnum):
    LOCAL = "local"
    DASK = "dask"
    RAY = "ray"


CacheOption = Annotated[
    Path | None, typer.Option(help="Folder of shadows and cells (default: in --out).", parser=path, metavar="<path>")
]
JobsOption = Annotated[int, typer.Option(min=0, max=1024, help="Processes; 0 takes all processors.")]


@with_sweep_options
def mechanism(
    options: SweepOptions,
    active: Annotated[
        bool, typer.Option("--active", help="Ask what a coordinator that cheats could reach, too.")
    ] = False,
    jobs: JobsOption = 0,
    backend: Annotated[_Backend, typer.Option(help="Where shadows are made.")] = _Backend.LOCAL,
    cache: CacheOption = None,
    out: OutOption = None,
    allow: AllowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Condense random halves of a pool and ask what each release tells, by images per class, start and noise.

    Exit code: 0 no leak detected, 10 leak, 11 inconclusive, 12 invalid, 2 an option or a file is missing or wrong.
    """
    asked = options.settings()
    from fedsecure_attacks.cli.terminal import print_report, watching
    from fedsecure_attacks.mechanism.command import cache_folder, measure
    from fedsecure_attacks.mechanism.running import check_backend, cores
    from fedsecure_attacks.report.folder import NAMES, write_report

    try:
        check_backend(backend.value)
        require_places(options.inputs(), out=out, names=NAMES, cache=cache)
        with cache_folder(cache, out) as folder, watching(quiet=as_json) as watch:
            report, cells = measure(
                asked, folder, jobs=jobs or cores(), backend=backend.value, active=active, watch=watch
            )
        written = write_report(report, out) if out is not None else []
    except (ConfigError, DataError) as error:
        raise usage(error) from None
    raise conclude(report, written, lambda: print_report(report, cells), allow=allow, as_json=as_json)


@with_sweep_options
def plan(
    options: SweepOptions,
    jobs: JobsOption = 0,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """What `audit mechanism` with the same options would take, and what it could say: minutes, people, power.

    One short shadow of each size is condensed to tell the time; nothing is audited.
    """
    asked = options.settings()
    from fedsecure_attacks.cli.terminal import print_plan
    from fedsecure_attacks.mechanism.planning import plan_sweep
    from fedsecure_attacks.mechanism.running import cores

    try:
        found = plan_sweep(asked, cache, jobs or cores())
    except (AuditError, ConfigError, DataError) as error:
        raise usage(error) from None
    if as_json:
        emit_json(found)
    else:
        print_plan(found)
