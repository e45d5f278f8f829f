"""What the nodes' records look like: the shape, the classes by name, and how values are scaled."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedsecure.config import Settings

__all__ = ["CategoricalColumn", "Column", "ImageTask", "NumericColumn", "TableTask", "Task"]

Name = Annotated[str, Field(min_length=1, max_length=200)]


def _distinct(what: str, names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"{what} {twice!r} is named twice")


class ImageTask(Settings):
    """Images of ``shape`` (channels, height, width) with pixels in [0, 1]; models see ``(x - mean) / std`` per
    channel."""

    kind: Literal["image"]
    classes: tuple[Name, ...] = Field(min_length=2, max_length=10_000)
    shape: tuple[
        Annotated[int, Field(ge=1, le=16)],
        Annotated[int, Field(ge=4, le=1024)],
        Annotated[int, Field(ge=4, le=1024)],
    ]
    mean: tuple[float, ...] = (0.5,)
    std: tuple[Annotated[float, Field(gt=0)], ...] = (0.5,)

    @model_validator(mode="after")
    def _consistent(self) -> ImageTask:
        _distinct("class", self.classes)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.shape[0]):
                raise ValueError(
                    f"{name} has {len(values)} values (allowed: 1, or one for each of {self.shape[0]} channels)"
                )
        return self

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of one record as the model sees it."""
        return self.shape


class NumericColumn(Settings):
    """A number, standardised as ``(value - mean) / std``. Values outside ``low``..``high`` are refused.

    ``missing``: ``refuse`` the table, put the ``mean``, or put the mean and add a 0/1 ``indicator`` feature.
    """

    kind: Literal["numeric"]
    name: Name
    low: float
    high: float
    mean: float
    std: float = Field(gt=0)
    missing: Literal["refuse", "mean", "indicator"] = "refuse"

    @model_validator(mode="after")
    def _ordered(self) -> NumericColumn:
        if self.low >= self.high:
            raise ValueError(f"column {self.name}: low {self.low:g} is not below high {self.high:g}")
        return self

    @property
    def width(self) -> int:
        """Number of features that the column becomes."""
        return 2 if self.missing == "indicator" else 1


class CategoricalColumn(Settings):
    """One of named ``levels``, one-hot encoded. ``missing``: ``refuse`` the table, encode as all ``zeros``, or as
    a ``level`` of its own."""

    kind: Literal["categorical"]
    name: Name
    levels: tuple[Name, ...] = Field(min_length=2, max_length=1000)
    missing: Literal["refuse", "zeros", "level"] = "refuse"

    @model_validator(mode="after")
    def _unique(self) -> CategoricalColumn:
        _distinct(f"column {self.name}: level", self.levels)
        return self

    @property
    def width(self) -> int:
        """Number of features that the column becomes."""
        return len(self.levels) + (self.missing == "level")


Column = Annotated[NumericColumn | CategoricalColumn, Field(discriminator="kind")]


class TableTask(Settings):
    """Rows of a table. The plan fixes columns, scales and levels, so that all nodes encode alike."""

    kind: Literal["table"]
    classes: tuple[Name, ...] = Field(min_length=2, max_length=10_000)
    columns: tuple[Column, ...] = Field(min_length=1, max_length=10_000)

    @model_validator(mode="after")
    def _consistent(self) -> TableTask:
        _distinct("class", self.classes)
        _distinct("column", tuple(c.name for c in self.columns))
        return self

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of one encoded row."""
        return (sum(c.width for c in self.columns),)


Task = Annotated[ImageTask | TableTask, Field(discriminator="kind")]
