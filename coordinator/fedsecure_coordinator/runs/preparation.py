"""Taking up runs: one at a time, on a thread that serves nobody and that nobody waits for.

Building a model and its first state cannot be interrupted. So whoever serves, ends runs or stops the daemon does not
depend on it, and a plan that would fill the memory is ended before anything is built.
"""

from __future__ import annotations

import os
import threading

from fedsecure.errors import ConfigError, StoreError
from fedsecure.plan import Plan
from fedsecure.plan.size import parameter_count, release_bytes
from fedsecure.randomness import server_seed
from fedsecure.tensors import Tensors
from fedsecure_coordinator.cohorts.arrivals import Arrivals
from fedsecure_coordinator.cohorts.manifests import Cohorts
from fedsecure_coordinator.cohorts.masks import CannotMask, decide, restore
from fedsecure_coordinator.runs.registry import Registry
from fedsecure_coordinator.runs.run import Run, one_line, plan_of
from fedsecure_coordinator.store.journal import RunRow

__all__ = ["Preparer", "check_fits", "memory_needed", "physical_memory"]

#: How often the journal is looked at for newly submitted runs (seconds).
LOOK_SECONDS = 0.5
#: Copies of the model that are in memory at once while a run is prepared or updated: the state, the network, what an
#: optimiser keeps, the bytes on their way to the disk.
MODEL_COPIES = 5
_HINT = "make the model or the releases smaller, or run the coordinator on a machine with more memory"


def memory_needed(plan: Plan) -> int:
    """Bytes that a run of ``plan`` holds in memory at its worst: copies of the model, and one release of each of
    ``min_nodes`` nodes. From the settings alone; nothing is built."""
    return MODEL_COPIES * 4 * parameter_count(plan.model, plan.task) + plan.cohort.min_nodes * release_bytes(plan)


def physical_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_fits(plan: Plan, memory: int) -> None:
    """Raise ``ConfigError`` when a run of ``plan`` does not fit in ``memory`` bytes."""
    needed = memory_needed(plan)
    if needed > memory:
        raise ConfigError(
            f"plan {plan.name}: its run needs {needed:,} bytes of memory (this machine has {memory:,})", hint=_HINT
        )


class Preparer:
    """Prepares what the journal holds and the registry does not, until ``stop`` is set. ``cohorts``: who may be summed
    under masks. ``memory``: bytes that a run may need."""

    def __init__(
        self, registry: Registry, cohorts: Cohorts, stop: threading.Event, *, memory: int | None = None
    ) -> None:
        self._registry, self._cohorts, self._stop = registry, cohorts, stop
        self._arrivals = Arrivals(cohorts)
        self._memory = physical_memory() if memory is None else memory

    def list_runs(self) -> None:
        """Know the runs that are over. From now on no run in the journal seems unknown to a node."""
        for row in self._registry.unprepared():
            if row.ended:
                self._registry.take_up_ended(row)
        self._registry.ready = True

    def prepare(self) -> None:
        """Until stopped: prepare what is submitted. Requests to end a run come first."""
        while not self._stop.is_set():
            self._arrivals.tell()
            self.take_up()
            self._stop.wait(LOOK_SECONDS)

    def take_up(self) -> None:
        """Prepare every run that the journal holds and the registry does not."""
        self.list_runs()
        self._registry.take_abort_requests()
        for row in self._registry.unprepared():
            if self._stop.is_set():
                return
            self._take_up(row)

    def _take_up(self, row: RunRow) -> None:
        """Restore a run where it was, or, if it is new, compute its first state and open it to nodes.

        A plan that is too large or cannot be run here ends with that reason, and does not stop the others.
        """
        registry = self._registry
        first: tuple[str, Tensors] | None = None
        try:
            plan = plan_of(row)
            check_fits(plan, self._memory)
            joined = {node for node, (is_in, _) in registry.journal.members(row.digest).items() if is_in}
            run = Run.restored(row, registry.build_method(plan), joined)
            if row.server:
                run.masks = restore(plan, run.method, self._cohorts, registry.journal.cohort(row.digest))
            else:
                run.masks = decide(plan, run.method, self._cohorts)
                first = registry.keep(run.method.init_server(server_seed(run.plan.seed)))
        except StoreError:
            raise
        except CannotMask as error:
            registry.end_unprepared(row, "secagg", one_line(error))
            return
        except Exception as error:
            registry.end_unprepared(row, "update", one_line(error))
            return
        registry.open(run, first)
