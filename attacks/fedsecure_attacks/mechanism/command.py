"""``audit mechanism`` behind its options: people, sweep, report, files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedsecure.errors import AuditError, ConfigError
from fedsecure.files import make_folder
from fedsecure_attacks.mechanism.grid import exact_cell
from fedsecure_attacks.mechanism.people import People, from_files, named
from fedsecure_attacks.mechanism.reporting import MechanismAudit, invalid_report, mechanism_report
from fedsecure_attacks.mechanism.running import Backend
from fedsecure_attacks.mechanism.sweep import Finished, Watch, ceiling, run_sweep
from fedsecure_attacks.mechanism.sweepfile import SweepSettings

__all__ = ["cache_folder", "measure", "people_of"]


def people_of(sweep: SweepSettings) -> People:
    """Whose records the sweep names. Raises ``DataError`` for files that are missing or wrong, ``AuditError`` for
    people who are in two parts."""
    data = sweep.data
    if data.name == "files":
        assert data.pool is not None
        assert data.population is not None
        return from_files(data.pool, data.population, data.test)
    return named(data.name, sweep.seed, data.sizes, data.folder)


@contextmanager
def cache_folder(cache: Path | None, out: Path | None) -> Iterator[Path]:
    """Where shadows are kept: ``cache``, or in ``out``; without both, until the end of the run."""
    if cache is None and out is None:
        with tempfile.TemporaryDirectory(prefix="fedsecure-audit-") as made:
            yield Path(made)
        return
    folder = cache if cache is not None else Path(out or ".") / "cache"
    make_folder(folder, private=True, error=ConfigError)
    yield folder


def measure(
    sweep: SweepSettings, folder: Path, *, jobs: int, backend: Backend, active: bool, watch: Watch | None = None
) -> tuple[dict[str, Any], list[Finished]]:
    """The report, and the cells it is of. What cannot be audited is its verdict, INVALID."""
    try:
        people = people_of(sweep)
        exact = ceiling(sweep, people, folder)
        if sweep.fast:
            cells = [Finished(exact_cell(), exact, False)]
        else:
            cells = run_sweep(sweep, people, folder, jobs=jobs, backend=backend, watch=watch)
        found = _active(people, sweep.seed, watch or Watch()) if active else None
        return mechanism_report(MechanismAudit(sweep, people, cells, exact, found)), cells
    except AuditError as error:
        return invalid_report(sweep, str(error)), []


def _active(people: People, seed: int, watch: Watch) -> Mapping[str, Any]:
    from fedsecure_attacks.active.audit import audit_active

    return audit_active(people.pool, people.population, seed=seed, progress=watch.began)
