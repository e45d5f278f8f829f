"""Where a node's records lie, and how a simulation deals a data set out. Read from TOML; imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from fedsecure.config import Settings, named_pattern
from fedsecure.errors import ConfigError

__all__ = [
    "AnyPartition",
    "AnySource",
    "ColumnPartition",
    "CsvSource",
    "DigitsSource",
    "DirichletPartition",
    "FolderSource",
    "NpzSource",
    "Simulation",
    "TorchvisionSource",
    "anchored",
    "anchored_source",
]


class _Source(Settings):
    """``classes`` maps the source's own names (folders, label values) to the plan's class names; a name that is not
    in the map stands for itself. ``ignore`` lists own names whose records are left out on purpose."""

    classes: dict[str, str] = {}
    ignore: tuple[str, ...] = ()


class FolderSource(_Source):
    """A folder of images with one sub-folder a class (PNG, JPEG, BMP, TIFF, …).

    ``resize``: pictures of another size than the plan's are resampled to it, instead of refused. ``grey``: colour
    pictures are made grey where the plan has one channel, instead of refused. Both change the data, so both are off.
    """

    kind: Literal["folder"]
    path: Path
    resize: bool = False
    grey: bool = False


class NpzSource(_Source):
    """A numpy ``.npz`` with images (n, channels, H, W) or (n, H, W), or rows (n, features), and labels (n,).

    uint8 images are divided by 255; float images must lie in [0, 1] already. No object arrays.
    """

    kind: Literal["npz"]
    path: Path
    x: str = "x"
    y: str = "y"


class CsvSource(_Source):
    """A table with a header line. ``columns`` maps the plan's column names to the file's; ``missing`` lists the tokens
    that mean "not recorded"; ``levels`` maps, for a categorical column, the file's values to the plan's levels."""

    kind: Literal["csv"]
    path: Path
    label: str
    columns: dict[str, str] = {}
    levels: dict[str, dict[str, str]] = {}
    missing: tuple[str, ...] = ("", "?", "NA", "NaN", "nan", "null")
    delimiter: str = Field(
        ",",
        min_length=1,
        max_length=1,
        pattern=named_pattern(r'^[^"\r\n\x00]$', "one character that separates columns"),
    )
    encoding: str = "utf-8-sig"
    decimal: Literal[".", ","] = "."


class DigitsSource(_Source):
    """scikit-learn's 1,797 handwritten digits, 8x8, inside the installed package."""

    kind: Literal["digits"]


class TorchvisionSource(_Source):
    """A torchvision data set that already lies in ``path``; nothing is downloaded."""

    kind: Literal["torchvision"]
    name: Literal["MNIST", "FashionMNIST", "KMNIST", "CIFAR10", "CIFAR100"]
    path: Path
    split: Literal["train", "test"] = "train"


AnySource = Annotated[
    FolderSource | NpzSource | CsvSource | DigitsSource | TorchvisionSource, Field(discriminator="kind")
]


class DirichletPartition(Settings):
    """Class-wise Dirichlet(``alpha``) over the nodes, redealt until each has ``min_size`` records (FedAF page,
    3.1)."""

    kind: Literal["dirichlet"]
    nodes: int = Field(ge=1, le=1000)
    alpha: float = Field(gt=0, le=1e6)
    min_size: int = Field(10, ge=0, le=1_000_000)


class ColumnPartition(Settings):
    """One node for each value of a column of a CSV source (a hospital, a region …)."""

    kind: Literal["column"]
    column: str


AnyPartition = Annotated[DirichletPartition | ColumnPartition, Field(discriminator="kind")]


class Simulation(Settings):
    """The ``[simulation]`` table of a plan file: what ``fedsecure simulate`` runs on. Not part of the plan's
    identity.

    ``test`` names a source of test records; without it ``test_fraction`` of ``data`` is held out, before it is
    dealt out.
    ``limit`` keeps only that many training records (drawn at random), for quick trials.
    """

    data: AnySource
    test: AnySource | None = None
    test_fraction: float = Field(0.2, gt=0, lt=1)
    limit: int | None = Field(None, ge=1)
    partition: AnyPartition


def anchored(path: Path, folder: Path) -> Path:
    """``path`` made absolute: ``~`` is the user's home, and a relative path starts in ``folder``."""
    try:
        return folder / path.expanduser()
    except RuntimeError:
        raise ConfigError(f"{path}: no such home folder", hint="write the path without ~") from None


def anchored_source(source: AnySource, folder: Path) -> AnySource:
    """A data source with its path, when it has one, made absolute."""
    if not hasattr(source, "path"):
        return source
    return source.model_copy(update={"path": anchored(source.path, folder)})
