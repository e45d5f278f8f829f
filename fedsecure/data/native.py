"""A source's images at its own size, whatever size the plan asks for: for those who resample them themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedsecure.data import load_dataset
from fedsecure.data.dealt import joined
from fedsecure.data.settings import DigitsSource, NpzSource, TorchvisionSource

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset
    from fedsecure.data.settings import AnySource
    from fedsecure.plan.task import ImageTask

__all__ = ["load_native", "native_shape"]


def load_native(source: AnySource, task: ImageTask, *, pool_splits: bool) -> Dataset:
    """All images (n, C, h, w) of ``source``, labelled with the classes of ``task``. ``pool_splits``: of a named set
    the training records, then the test records. Raises ``DataError`` as ``load_dataset``."""
    own = task.model_copy(update={"shape": native_shape(source, task)})
    if not (pool_splits and isinstance(source, TorchvisionSource)):
        return load_dataset(source, own)
    splits = [source.model_copy(update={"split": split}) for split in ("train", "test")]
    return joined([load_dataset(split, own) for split in splits])


def native_shape(source: AnySource, task: ImageTask) -> tuple[int, int, int]:
    """(channels, height, width) of the images of ``source``; a folder's are brought to the plan's shape as they are
    read (``resize``)."""
    if isinstance(source, DigitsSource):
        from fedsecure.data.digits import SHAPE

        return SHAPE
    if isinstance(source, TorchvisionSource):
        from fedsecure.data.torchvision_sets import SHAPES

        return SHAPES[source.name]
    if isinstance(source, NpzSource):
        from fedsecure.data.npz import declared_images

        return declared_images(source) or task.shape
    return task.shape
