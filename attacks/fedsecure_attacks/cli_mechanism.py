"""``fedsecure audit mechanism`` and ``audit plan``: what a way to release tells, before anybody releases."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsecure.commands.output import JsonOption, emit_json, fail_with, say
from fedsecure.errors import ConfigError, DataError
from fedsecure_attacks.cli_exits import USAGE, AllowOption, end

if TYPE_CHECKING:
    from fedsecure_attacks.mechanism.sweepfile import SweepSettings

__all__ = ["mechanism", "plan"]


class _Data(StrEnum):
    DIGITS = "digits"
    FASHION = "fashion-mnist"


class _Backend(StrEnum):
    LOCAL = "local"
    DASK = "dask"
    RAY = "ray"


SweepArgument = Annotated[
    Path | None, typer.Argument(help="A sweep in a TOML file; options go over it.", metavar="SWEEP", readable=False)
]
DataOption = Annotated[
    _Data | None, typer.Option("--data", help="Named records, dealt into pool, population and test.")
]
PoolOption = Annotated[Path | None, typer.Option(help="Records that may be in or out (.npz with x and y).")]
PopulationOption = Annotated[Path | None, typer.Option(help="Others of the same population.")]
TestOption = Annotated[Path | None, typer.Option("--test", help="Records to test models on.")]
IpcOption = Annotated[str | None, typer.Option(help="Images per class, such as 1,5,10,20,50.")]
InitOption = Annotated[str | None, typer.Option(help="What images start from: noise,avg,real.")]
SigmaOption = Annotated[str | None, typer.Option(help="Noise multipliers of differential privacy; 0 for none.")]
RoundsOption = Annotated[str | None, typer.Option(help="Rounds of federated runs, such as 1,5.")]
CurvesOption = Annotated[str | None, typer.Option(help="deployed,matched: as deployed, at matched residual, or both.")]
FederatedOption = Annotated[bool, typer.Option("--federated", help="Shadows are whole runs of FedAF, and see T3.")]
ShadowsOption = Annotated[int | None, typer.Option(help="Random halves of the pool in each cell, at least 4.")]
StepsOption = Annotated[int | None, typer.Option(help="Steps of condensing (of each round).")]
SeedOption = Annotated[int | None, typer.Option(min=0, help="Of everything that is drawn.")]
FastOption = Annotated[bool, typer.Option("--fast", help="Condense nothing: exact class means, the ceiling.")]
CacheOption = Annotated[Path | None, typer.Option(help="Folder of shadows and cells (default: in --out).")]
JobsOption = Annotated[int, typer.Option(min=0, max=1024, help="Processes; 0 takes all processors.")]


def mechanism(
    sweep: SweepArgument = None,
    data: DataOption = None,
    pool: PoolOption = None,
    population: PopulationOption = None,
    test: TestOption = None,
    ipc: IpcOption = None,
    init: InitOption = None,
    sigma: SigmaOption = None,
    rounds: RoundsOption = None,
    curves: CurvesOption = None,
    federated: FederatedOption = False,
    shadows: ShadowsOption = None,
    steps: StepsOption = None,
    seed: SeedOption = None,
    max_tpr: Annotated[
        float | None, typer.Option(min=0, max=1, help="Accepted true-positive rate at a false one of 0.01.")
    ] = None,
    max_auc: Annotated[float | None, typer.Option(min=0.5, max=1, help="Accepted area under the curve.")] = None,
    fast: FastOption = False,
    active: Annotated[
        bool, typer.Option("--active", help="Ask what a coordinator that cheats could reach, too.")
    ] = False,
    jobs: JobsOption = 0,
    backend: Annotated[_Backend, typer.Option(help="Where shadows are made.")] = _Backend.LOCAL,
    cache: CacheOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for report.json and report.html.")] = None,
    allow: AllowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Condense random halves of a pool and ask what each release tells, by images per class, start and noise.

    Exit code: 0 no leak detected, 10 leak, 11 inconclusive, 12 invalid, 2 an option or a file is missing or wrong.
    """
    asked = _asked(
        sweep, data, pool, population, test, ipc, init, sigma, rounds, curves, federated, shadows, steps, seed,
        max_tpr=max_tpr, max_auc=max_auc, fast=fast,
    )  # fmt: skip
    from fedsecure_attacks.mechanism.cli_terminal import print_report, watching
    from fedsecure_attacks.mechanism.command import cache_folder, measure
    from fedsecure_attacks.mechanism.running import check_backend, cores
    from fedsecure_attacks.report.folder import write_report
    from fedsecure_attacks.strictjson import dump

    try:
        check_backend(backend.value)
        with cache_folder(cache, out) as folder, watching(quiet=as_json) as watch:
            report, cells = measure(
                asked, folder, jobs=jobs or cores(), backend=backend.value, active=active, watch=watch
            )
        written = write_report(report, out) if out is not None else []
    except (ConfigError, DataError) as error:
        raise _usage(error) from None
    if as_json:
        typer.echo(dump(report), nl=False)
    else:
        print_report(report, cells)
        for path in written:
            say(f"wrote {path}")
    raise end(report["verdict"], int(report["exit_code"]), allow)


def plan(
    sweep: SweepArgument = None,
    data: DataOption = None,
    pool: PoolOption = None,
    population: PopulationOption = None,
    test: TestOption = None,
    ipc: IpcOption = None,
    init: InitOption = None,
    sigma: SigmaOption = None,
    rounds: RoundsOption = None,
    curves: CurvesOption = None,
    federated: FederatedOption = False,
    shadows: ShadowsOption = None,
    steps: StepsOption = None,
    seed: SeedOption = None,
    max_tpr: Annotated[
        float | None, typer.Option(min=0, max=1, help="Accepted true-positive rate at a false one of 0.01.")
    ] = None,
    max_auc: Annotated[float | None, typer.Option(min=0.5, max=1, help="Accepted area under the curve.")] = None,
    fast: FastOption = False,
    jobs: JobsOption = 0,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """What `audit mechanism` with the same options would take, and what it could say: minutes, people, power.

    One short shadow of each size is condensed to tell the time; nothing is audited.
    """
    asked = _asked(
        sweep, data, pool, population, test, ipc, init, sigma, rounds, curves, federated, shadows, steps, seed,
        max_tpr=max_tpr, max_auc=max_auc, fast=fast,
    )  # fmt: skip
    from fedsecure.errors import AuditError
    from fedsecure_attacks.mechanism.cli_terminal import print_plan
    from fedsecure_attacks.mechanism.planning import plan_sweep
    from fedsecure_attacks.mechanism.running import cores

    try:
        found = plan_sweep(asked, cache, jobs or cores())
    except (AuditError, ConfigError, DataError) as error:
        raise _usage(error) from None
    if as_json:
        emit_json(found)
    else:
        print_plan(found)


def _asked(
    sweep: Path | None,
    data: _Data | None,
    pool: Path | None,
    population: Path | None,
    test: Path | None,
    ipc: str | None,
    init: str | None,
    sigma: str | None,
    rounds: str | None,
    curves: str | None,
    federated: bool,
    shadows: int | None,
    steps: int | None,
    seed: int | None,
    *,
    max_tpr: float | None,
    max_auc: float | None,
    fast: bool,
) -> SweepSettings:
    """The sweep that file and options ask for together."""
    from fedsecure_attacks.mechanism.sweepfile import load_sweep, merged

    files = {name: str(path) for name, path in (("pool", pool), ("population", population), ("test", test)) if path}
    if data is not None and files:
        raise _usage(ConfigError(f"--data {data.value} and --{next(iter(files))} exclude each other"))
    try:
        raw = {} if sweep is None else load_sweep(sweep)
        if federated:
            raw = {**raw, "federated": raw.get("federated", {})}
        if data is not None or files:
            raw = {**raw, "data": {"name": "files" if data is None else data.value, **files}}
        options: dict[str, Any] = {
            "grid.ipc": _numbers("--ipc", ipc, int),
            "grid.init": None if init is None else init.split(","),
            "grid.sigma": _numbers("--sigma", sigma, float),
            "grid.rounds": _numbers("--rounds", rounds, int),
            "grid.curves": _curves(curves),
            "shadows": shadows,
            "condensation.steps": steps,
            "seed": seed,
            "thresholds.tpr": max_tpr,
            "thresholds.auc": max_auc,
            "fast": True if fast else None,
        }
        return merged(raw, options, "options" if sweep is None else f"{sweep} with options")
    except ConfigError as error:
        raise _usage(error) from None


def _usage(error: Any) -> typer.Exit:
    return typer.Exit(fail_with(type(error).__name__, str(error), error.hint, USAGE))


def _numbers(option: str, text: str | None, kind: type[int] | type[float]) -> list[Any] | None:
    if text is None:
        return None
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        words = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"{option} {text[:60]!r}: {words} with commas between them are due") from None


def _curves(text: str | None) -> list[str] | None:
    if text is None:
        return None
    known = {"deployed": "as deployed", "matched": "matched residual"}
    return [known.get(part, part) for part in text.split(",")]
