"""Where a node's records lie, and how a simulation deals a data set out. Read from TOML; imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedsecure.config import NodeId, PlacePath, Settings, named_pattern
from fedsecure.errors import ConfigError

__all__ = [
    "AnyPartition",
    "AnySource",
    "ColumnPartition",
    "CsvSource",
    "DigitsSource",
    "DirichletPartition",
    "DualHeterogeneityPartition",
    "FolderSource",
    "NpzSource",
    "Simulation",
    "SourcesPartition",
    "TorchvisionSource",
    "anchored",
    "anchored_simulation",
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
    path: PlacePath
    resize: bool = False
    grey: bool = False


class NpzSource(_Source):
    """A numpy ``.npz`` with images (n, channels, H, W) or (n, H, W), or rows (n, features), and labels (n,).

    uint8 images are divided by 255; float images must lie in [0, 1] already. No object arrays.
    """

    kind: Literal["npz"]
    path: PlacePath
    x: str = "x"
    y: str = "y"


class CsvSource(_Source):
    """A table with a header line. ``columns`` maps the plan's column names to the file's; ``missing`` lists the tokens
    that mean "not recorded"; ``missing_values`` lists, for one of the plan's columns, further such tokens (a
    cholesterol of 0); ``levels`` maps, for a categorical column, the file's values to the plan's levels."""

    kind: Literal["csv"]
    path: PlacePath
    label: str
    columns: dict[str, str] = {}
    levels: dict[str, dict[str, str]] = {}
    missing: tuple[str, ...] = ("", "?", "NA", "NaN", "nan", "null")
    missing_values: dict[str, tuple[str, ...]] = {}
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
    path: PlacePath
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


class SourcesPartition(Settings):
    """Nothing is dealt out: each node has a source of its own, as it would have in ``node.toml``."""

    kind: Literal["sources"]
    nodes: dict[NodeId, AnySource] = Field(min_length=1, max_length=1000)


class DualHeterogeneityPartition(Settings):
    """The dual-heterogeneity benchmark of the FedSPM paper: nodes differ in looks, and within each node two latent
    components differ (FedSPM page, section 4). Images with three channels only.

    ``alpha_inter``: class-wise Dirichlet over the nodes; ``alpha_intra``: Dirichlet of a node's two components.
    ``inversion``: what component 1 has inverted. ``gain`` and ``ramp``: strengths of a node's colour shift and of its
    brightness ramps. ``permute_labels``: each (node, component) has a labelling of its own. ``test_fraction`` of each
    node's records is held out after a shuffle. ``share``: the part of the records that is used. ``crop``: least area
    of the random crop of training records, 1 for none. ``pool_splits``: training and test halves of a named set are
    pooled first.
    """

    kind: Literal["dual-heterogeneity"]
    nodes: int = Field(8, ge=2, le=8)
    alpha_inter: float = Field(1.0, gt=0, le=1e6)
    alpha_intra: float = Field(2.0, gt=0, le=1e6)
    inversion: Literal["all", "green", "none"] = "all"
    gain: float = Field(0.3, ge=0, le=1)
    ramp: float = Field(0.2, ge=0, le=1)
    permute_labels: bool = True
    test_fraction: float = Field(0.3, gt=0, lt=1)
    share: float = Field(1.0, gt=0, le=1)
    crop: float = Field(1.0, gt=0, le=1)
    min_size: int = Field(10, ge=2, le=1_000_000)
    pool_splits: bool = True


AnyPartition = Annotated[
    DirichletPartition | ColumnPartition | SourcesPartition | DualHeterogeneityPartition, Field(discriminator="kind")
]


class Simulation(Settings):
    """The ``[simulation]`` table of a plan file: what ``fedsecure simulate`` runs on. Not part of the plan's
    identity.

    ``data`` is what is dealt out; only the partition ``sources`` does without. ``test`` names a source of test
    records; without it ``test_fraction`` is held out: of ``data`` before it is dealt out (``holdout = "pooled"``), or
    of each node's own records (``"per_node"``).
    ``limit`` keeps only that many training records (drawn at random; with ``"per_node"``, training and test records
    together), for quick trials. The model is tested after every ``evaluate_every``-th round, and after the last.
    """

    data: AnySource | None = None
    test: AnySource | None = None
    test_fraction: float = Field(0.2, gt=0, lt=1)
    holdout: Literal["pooled", "per_node"] = "pooled"
    limit: int | None = Field(None, ge=1)
    evaluate_every: int = Field(1, ge=1)
    partition: AnyPartition

    @model_validator(mode="after")
    def _fits(self) -> Simulation:
        kind = self.partition.kind
        if kind == "sources" and self.data is not None:
            raise ValueError("data has no place beside partition.kind 'sources', which names each node's own source")
        if kind != "sources" and self.data is None:
            raise ValueError(f"data is missing: partition.kind '{kind}' deals it out")
        if self.test is not None and self.holdout == "per_node":
            raise ValueError("test has no place beside holdout 'per_node', by which each node tests on its own records")
        if kind == "dual-heterogeneity" and (wrong := _DUAL_HAS_ITS_OWN & self.model_fields_set):
            raise ValueError(
                f"leave out {', '.join(sorted(wrong))}: partition.kind 'dual-heterogeneity' holds out "
                "partition.test_fraction of each node's records, and uses partition.share of all"
            )
        return self


#: What the dual-heterogeneity partition settles itself.
_DUAL_HAS_ITS_OWN = {"test", "test_fraction", "holdout", "limit"}


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


def anchored_simulation(simulation: Simulation, folder: Path) -> Simulation:
    """A simulation with the paths of all its sources made absolute."""
    sources = {"data": simulation.data, "test": simulation.test}
    changed: dict[str, object] = {
        key: anchored_source(source, folder) for key, source in sources.items() if source is not None
    }
    if isinstance(simulation.partition, SourcesPartition):
        nodes = {node: anchored_source(source, folder) for node, source in simulation.partition.nodes.items()}
        changed["partition"] = simulation.partition.model_copy(update={"nodes": nodes})
    return simulation.model_copy(update=changed)
