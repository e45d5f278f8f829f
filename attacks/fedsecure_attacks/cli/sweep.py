"""The options of a sweep, which ``audit mechanism`` and ``audit plan`` are both asked with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fedsecure.errors import ConfigError
from fedsecure_attacks.cli.exits import usage
from fedsecure_attacks.cli.options import MAX_AUC, MAX_TPR

if TYPE_CHECKING:
    from fedsecure_attacks.mechanism.sweepfile import SweepSettings

__all__ = ["SweepOptions", "with_sweep_options"]


class _Data(StrEnum):
    DIGITS = "digits"
    FASHION = "fashion-mnist"


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What the command line says of a sweep, in the order of ``--help``; None is not said."""

    sweep: Annotated[
        Path | None, typer.Argument(help="A sweep in a TOML file; options go over it.", metavar="SWEEP", readable=False)
    ] = None
    data: Annotated[
        _Data | None, typer.Option("--data", help="Named records, dealt into pool, population and test.")
    ] = None
    pool: Annotated[Path | None, typer.Option(help="Records that may be in or out (.npz with x and y).")] = None
    population: Annotated[Path | None, typer.Option(help="Others of the same population.")] = None
    test: Annotated[Path | None, typer.Option("--test", help="Records to test models on.")] = None
    ipc: Annotated[str | None, typer.Option(help="Images per class, such as 1,5,10,20,50.")] = None
    init: Annotated[str | None, typer.Option(help="What images start from: noise,avg,real.")] = None
    sigma: Annotated[str | None, typer.Option(help="Noise multipliers of differential privacy; 0 for none.")] = None
    rounds: Annotated[str | None, typer.Option(help="Rounds of federated runs, such as 1,5.")] = None
    curves: Annotated[str | None, typer.Option(help="deployed,matched: as deployed, at matched residual, or both.")] = (
        None
    )
    federated: Annotated[bool, typer.Option("--federated", help="Shadows are whole runs of FedAF, and see T3.")] = False
    shadows: Annotated[int | None, typer.Option(help="Random halves of the pool in each cell, at least 4.")] = None
    steps: Annotated[int | None, typer.Option(help="Steps of condensing (of each round).")] = None
    seed: Annotated[int | None, typer.Option(min=0, help="Of everything that is drawn.")] = None
    max_tpr: Annotated[float | None, MAX_TPR] = None
    max_auc: Annotated[float | None, MAX_AUC] = None
    fast: Annotated[bool, typer.Option("--fast", help="Condense nothing: exact class means, the ceiling.")] = False

    def settings(self) -> SweepSettings:
        """The sweep that file and options ask for together. Raises ``typer.Exit`` for what is wrong, and tells it."""
        from fedsecure_attacks.mechanism.sweepfile import load_sweep, merged

        try:
            files = self._files()
            raw = {} if self.sweep is None else load_sweep(self.sweep)
            if self.federated:
                raw = {**raw, "federated": raw.get("federated", {})}
            if self.data is not None or files:
                raw = {**raw, "data": {"name": "files" if self.data is None else self.data.value, **files}}
            return merged(raw, self._options(), "options" if self.sweep is None else f"{self.sweep} with options")
        except ConfigError as error:
            raise usage(error) from None

    def inputs(self) -> dict[str, Path | None]:
        """The files that are read, by what they are called."""
        return {"SWEEP": self.sweep, "--pool": self.pool, "--population": self.population, "--test": self.test}

    def _files(self) -> dict[str, str]:
        named = (("pool", self.pool), ("population", self.population), ("test", self.test))
        files = {name: str(path) for name, path in named if path}
        if self.data is not None and files:
            raise ConfigError(f"--data {self.data.value} and --{next(iter(files))} exclude each other")
        return files

    def _options(self) -> dict[str, Any]:
        return {
            "grid.ipc": _numbers("--ipc", self.ipc, int),
            "grid.init": None if self.init is None else self.init.split(","),
            "grid.sigma": _numbers("--sigma", self.sigma, float),
            "grid.rounds": _numbers("--rounds", self.rounds, int),
            "grid.curves": _curves(self.curves),
            "shadows": self.shadows,
            "condensation.steps": self.steps,
            "seed": self.seed,
            "thresholds.tpr": self.max_tpr,
            "thresholds.auc": self.max_auc,
            "fast": True if self.fast else None,
        }


def with_sweep_options(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` as typer is to see it: in place of its first parameter, which is of ``SweepOptions``, all of their
    fields stand in its signature."""
    signature = inspect.signature(command, eval_str=True)
    hints = get_type_hints(SweepOptions, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(SweepOptions)
    ]
    own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in list(signature.parameters.values())[1:]]

    @wraps(command)
    def wrapped(**given: Any) -> None:
        options = SweepOptions(**{each.name: given.pop(each.name) for each in shared})
        command(options, **given)

    wrapped.__signature__ = signature.replace(parameters=[*shared, *own])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {each.name: each.annotation for each in (*shared, *own)}
    return wrapped


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
