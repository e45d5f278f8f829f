"""The one process that tests fork others from, once it has imported everything: importing torch and Opacus takes a node
longer than all its work in a test.

A test process has one fork server for all of its tests. What it imports is decided when it starts, so that there is one
list: a server without a part of it would have every process import that part anew.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

__all__ = ["fork_context"]

#: What daemons import sooner or later, private runs included.
IMPORTED = (
    *("torch", "scipy.special", "grpc", "fedsecure.cli", "fedsecure.methods.condensed"),
    *("fedsecure.methods.fedspm", "fedsecure.privacy.dpsgd", "fedsecure.privacy.prv"),
    *("fedsecure_node.assemble", "fedsecure_coordinator.process", "fedsecure_attacks.gate"),
)


def fork_context() -> ForkServerContext:
    """Where processes are started; the first one waits for the server's imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context
