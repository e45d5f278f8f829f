"""Many tasks at once through joblib: in processes of this machine, or of a Dask or Ray cluster. Each task computes with
one thread, so that what it finds depends on nothing else that runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

from fedsecure.errors import ConfigError

__all__ = ["Backend", "all_of", "check_backend", "cores"]

Backend = Literal["local", "dask", "ray"]
#: backend -> what has to be installed for it.
NEEDED = {"dask": "distributed", "ray": "ray"}
T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Processors that this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


def check_backend(backend: Backend) -> None:
    """Raise ``ConfigError`` when what ``backend`` needs is not installed."""
    package = NEEDED.get(backend)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ConfigError(
            f"--backend {backend}: the package '{package}' is not installed",
            hint=f"pip install 'fedsecure[{backend}]', or leave it to processes of this machine (--backend local)",
        )


def all_of(work: Callable[[T], R], tasks: Sequence[T], jobs: int, backend: Backend) -> Iterator[R]:
    """What ``work`` makes of each task, as it is done, in no order. ``work`` and tasks must be such that another
    process can have them. Raises what a task raises."""
    from joblib import Parallel, delayed

    if backend == "local" and (jobs == 1 or len(tasks) == 1):
        for task in tasks:
            yield _alone(work, task)
        return
    with _parallel(backend):
        kind: Literal["generator_unordered", "list"] = "list" if backend == "ray" else "generator_unordered"
        yield from Parallel(n_jobs=min(jobs, len(tasks)) or 1, return_as=kind, batch_size=1)(
            delayed(_alone)(work, task) for task in tasks
        )


def _alone(work: Callable[[T], R], task: T) -> R:
    """One task, with one thread for PyTorch and the linear algebra below numpy."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            return work(task)
    finally:
        torch.set_num_threads(before)


@contextmanager
def _parallel(backend: Backend) -> Iterator[None]:
    from joblib import parallel_config

    if backend == "local":
        with parallel_config(backend="loky", inner_max_num_threads=1):
            yield
    elif backend == "dask":
        from distributed import Client, get_client

        try:
            get_client()
        except ValueError:  # none was set up: DASK_SCHEDULER_ADDRESS says where it is, else one of this machine
            with Client(), parallel_config(backend="dask"):
                yield
        else:
            with parallel_config(backend="dask"):
                yield
    else:
        from ray.util.joblib import register_ray

        register_ray()
        with parallel_config(backend="ray"):
            yield
