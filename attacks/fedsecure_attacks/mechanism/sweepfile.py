"""A sweep as it is asked for, in a TOML file or by options; fixed, and hashed, before anything is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fedsecure.config import PlacePath, Settings, load_toml, validate
from fedsecure.errors import ConfigError
from fedsecure.files import shown

__all__ = [
    "CURVES", "Accepted", "Condensation", "Data", "Federated", "Grid", "Init", "SweepSettings", "load_sweep", "merged",
]  # fmt: skip

Init = Literal["noise", "avg", "real"]
Count = Annotated[int, Field(ge=1, le=100_000)]
Sigma = Annotated[float, Field(ge=0, le=1e6)]
Curve = Literal["as deployed", "matched residual"]
CURVES: tuple[Curve, Curve] = ("as deployed", "matched residual")
#: Where Debian's package puts Fashion-MNIST.
FASHION = Path("/usr/share/datasets/fashion-mnist")
#: Records of pool, population and test set that named data are dealt into.
SIZES = {"digits": (1100, 400, 280), "fashion-mnist": (2000, 2000, 2000)}


class Data(Settings):
    """``name``: whose records. ``files`` are the ``.npz`` at ``pool``, ``population`` and, for accuracies, ``test``.
    The others are dealt into parts of ``pool_size``, ``population_size`` and ``test_size``; ``folder`` holds the IDX
    files of Fashion-MNIST."""

    name: Literal["digits", "fashion-mnist", "files"] = "digits"
    pool: PlacePath | None = None
    population: PlacePath | None = None
    test: PlacePath | None = None
    folder: PlacePath = FASHION
    pool_size: int | None = Field(None, ge=8, le=1_000_000)
    population_size: int | None = Field(None, ge=8, le=1_000_000)
    test_size: int | None = Field(None, ge=0, le=1_000_000)

    @model_validator(mode="after")
    def _consistent(self) -> Data:
        if self.name == "files" and (self.pool is None or self.population is None):
            raise ValueError("files: pool and population are needed, people who may be in and people who are not")
        if self.name != "files" and (self.pool or self.population or self.test):
            raise ValueError(f"{self.name}: pool, population and test are for name 'files'")
        return self

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Records of each part, of named data."""
        given = (self.pool_size, self.population_size, self.test_size)
        pool, population, test = (b if a is None else a for a, b in zip(given, SIZES[self.name], strict=True))
        return pool, population, test


class Grid(Settings):
    """What is varied; every combination is a cell, once for each curve. ``rounds``: of federated runs alone."""

    ipc: tuple[Count, ...] = Field((1, 5, 10, 20, 50), min_length=1, max_length=32)
    init: tuple[Init, ...] = Field(("noise",), min_length=1, max_length=3)
    sigma: tuple[Sigma, ...] = Field((0.0,), min_length=1, max_length=16)
    rounds: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = Field((5,), min_length=1, max_length=16)
    curves: tuple[Curve, ...] = Field(CURVES, min_length=1, max_length=2)


class Condensation(Settings):
    """What every cell has in common."""

    init_n: int = Field(10, ge=1, le=10_000)
    steps: int = Field(300, ge=1, le=1_000_000)
    interval: int = Field(20, ge=1, le=1_000_000)
    lr: float = Field(0.1, gt=0, le=1000)
    width: int = Field(32, ge=1, le=4096)


class Federated(Settings):
    """Shadows are whole runs of FedAF among ``nodes``, of which one is audited; ``steps`` are then of each round."""

    nodes: int = Field(3, ge=2, le=64)
    lambda_loc: float = Field(0.5, ge=0, le=1000)
    server_steps: int = Field(200, ge=1, le=1_000_000)


class Accepted(Settings):
    """What the institution accepts (``Thresholds``)."""

    tpr: float = Field(0.02, ge=0, le=1)
    auc: float = Field(0.55, ge=0.5, le=1)
    fpr: float = Field(0.01, gt=0, lt=1)


class SweepSettings(Settings):
    """``shadows``: random halves of the pool that are condensed in each cell, and ``strangers``: sets from others.
    ``residual``: what "matched residual" condenses to; "auto" takes the median of what the cells that start from noise
    reach as deployed (of all, where none does). ``networks`` of the embedding. ``models``: whether a model is trained
    on each set for ``model_steps``, for accuracy and the attacks by loss. ``fast``: exact class means, and no sets."""

    seed: int = Field(0, ge=0, lt=2**53)
    data: Data = Data()
    grid: Grid = Grid()
    condensation: Condensation = Condensation()
    federated: Federated | None = None
    thresholds: Accepted = Accepted()
    shadows: int = Field(8, ge=4, le=1000)
    strangers: int = Field(2, ge=1, le=100)
    networks: int = Field(8, ge=1, le=256)
    models: bool = True
    model_steps: int = Field(300, ge=1, le=100_000)
    residual: Literal["auto"] | Annotated[float, Field(gt=0, le=1e9)] = "auto"
    fast: bool = False


def load_sweep(path: Path) -> dict[str, Any]:
    """The file's tables, checked; paths in it are relative to its folder. Raises ``ConfigError``."""
    raw = load_toml(path)
    validate(SweepSettings, raw, shown(path))
    data = dict(raw.get("data", {}))
    for name in ("pool", "population", "test", "folder"):
        if name in data:
            data[name] = str(path.parent / Path(data[name]).expanduser())
    return {**raw, **({"data": data} if data else {})}


def merged(raw: dict[str, Any], options: dict[str, Any], where: str) -> SweepSettings:
    """``raw`` with ``options`` over it: dotted names, ``None`` for what was not given. Raises ``ConfigError``."""
    tables = {name: dict(value) if isinstance(value, dict) else value for name, value in raw.items()}
    for name, value in options.items():
        if value is None:
            continue
        table, _, key = name.rpartition(".")
        if table:
            tables.setdefault(table, {})[key] = value
        else:
            tables[key] = value
    if tables.get("federated") is None and "rounds" in tables.get("grid", {}):
        raise ConfigError(
            f"{where}: rounds are for federated runs, and single condensations have none",
            hint="add --federated, or a table [federated]",
        )
    return validate(SweepSettings, tables, where)
