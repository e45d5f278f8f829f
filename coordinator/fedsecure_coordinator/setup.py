"""The folder of a coordinator: settings from the packaged example, the store, plans put into it."""

from __future__ import annotations

import json
import time
from importlib.resources import files
from pathlib import Path

from fedsecure.config import validate
from fedsecure.errors import ConfigError
from fedsecure.files import PUBLIC_FILE, create_durably, exists, faults, private_folder
from fedsecure.masked_plan import masked_exchanges
from fedsecure.methods.outline import outline_of
from fedsecure.plan import load_plan
from fedsecure_coordinator.cohorts.manifests import Cohorts
from fedsecure_coordinator.cohorts.masks import require_manifest
from fedsecure_coordinator.runs.preparation import check_fits, physical_memory
from fedsecure_coordinator.settings import CONFIG_NAME, CoordinatorSettings, load_settings
from fedsecure_coordinator.store.journal import JOURNAL_NAME, Access, Journal, RunRow

__all__ = ["check_new", "example", "open_store", "submit_plan", "write_settings"]


def example() -> str:
    """The text of the packaged ``coordinator.example.toml``."""
    return files("fedsecure_coordinator").joinpath("coordinator.example.toml").read_text(encoding="utf-8")


def check_new(folder: Path, *, federation: str, listen: str) -> None:
    """Raise ``ConfigError`` when these cannot become a ``coordinator.toml`` in ``folder``."""
    raw = {"format": 1, "federation": federation, "listen": listen}
    validate(CoordinatorSettings, raw, "coordinator init")
    if exists(folder / CONFIG_NAME, ConfigError):
        raise ConfigError(f"{folder / CONFIG_NAME}: exists already", hint="use another folder, or move it away")


def write_settings(folder: Path, *, federation: str, listen: str) -> Path:
    """Write ``coordinator.toml`` from the example. Raises ``ConfigError`` when it cannot be written."""
    text = example()
    for key, value in (("federation", federation), ("listen", listen)):
        old = next(line for line in text.splitlines() if line.startswith(f"{key} ="))
        text = text.replace(old, f"{key} = {json.dumps(value)}")
    path = folder / CONFIG_NAME
    with faults(path, "written", ConfigError):
        create_durably(path, text.encode(), mode=PUBLIC_FILE)
    return path


def open_store(folder: Path, access: Access) -> tuple[CoordinatorSettings, Journal]:
    """Settings and journal of ``folder``. Raises ``ConfigError`` for an absent store, unless ``access`` creates it."""
    settings = load_settings(folder)
    path = settings.store / JOURNAL_NAME
    if access == "create":
        private_folder(settings.store)
    elif not exists(path):
        raise ConfigError(
            f"{settings.store}: no run was ever submitted here, and no daemon has begun (or the store was removed)",
            hint="fedsecure coordinator submit PLAN, or fedsecure coordinator run; a removed store needs its backup",
        )
    return settings, Journal(path, access)


def submit_plan(journal: Journal, path: Path, *, max_nodes: int, cohorts: Cohorts | None = None) -> tuple[RunRow, bool]:
    """Add the run of a plan file; returns its row, and whether it is new. ``cohorts``: what a new run's sums can be
    masked under; ``None``: that is not looked at.

    Raises ``ConfigError`` for a plan that is wrong, that names or needs more nodes than this coordinator serves, that
    needs more memory than this machine has, or whose sums cannot be masked as it asks.
    """
    plan, _ = load_plan(path)
    needed = max(plan.cohort.min_nodes, len(plan.cohort.nodes))
    if needed > max_nodes:
        raise ConfigError(
            f"{path}: cohort of {needed} nodes (allowed: <= {max_nodes})",
            hint="raise limits.max_nodes in coordinator.toml",
        )
    check_fits(plan, physical_memory())
    if plan.secagg != "off":
        masked_exchanges(plan, outline_of(plan))
    if cohorts is not None and not any(known.digest == plan.digest() for known in journal.runs()):
        require_manifest(plan, cohorts)
    row = RunRow(plan.digest(), plan.name, plan.canonical(), time.time_ns() // 1_000_000)
    new = journal.add_run(row)
    return next(r for r in journal.runs() if r.digest == row.digest), new
