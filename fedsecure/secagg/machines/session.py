"""A whole session in one process: for simulations, which run the same machines as nodes and coordinator do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedsecure.crypto.signatures import SigningIdentity, ephemeral_identity
from fedsecure.errors import FedSecureError, RemoteProtocolError, SecAggError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.machines.coordinator import SecAggCoordinator, Sums
from fedsecure.secagg.machines.node import SecAggNode
from fedsecure.secagg.machines.vectors import Masked

__all__ = ["deliver", "ephemeral_cohort", "run_leg", "run_session"]


def ephemeral_cohort(federation: str, nodes: Iterable[str]) -> tuple[CohortManifest, dict[str, SigningIdentity]]:
    """A cohort of fresh keys, signed by all, that exists for one simulation. Raises ``ConfigError`` as the manifest."""
    identities = {node: ephemeral_identity() for node in nodes}
    keys = {node: identity.public_bytes for node, identity in identities.items()}
    manifest = CohortManifest.form(federation, "simulation", 1, keys)
    for node, identity in identities.items():
        manifest = manifest.signed(node, identity)
    return manifest, identities


def run_session(coordinator: SecAggCoordinator, nodes: Mapping[str, SecAggNode]) -> Sums:
    """Pump every leg to its end. A node that fails, or is not in ``nodes``, is out. Raises ``SecAggError`` when the
    session ends without a sum."""
    try:
        while not coordinator.done:
            run_leg(coordinator, nodes)
            coordinator.advance()
    finally:
        for node in nodes.values():
            node.wipe()
    return coordinator.outcome


def run_leg(coordinator: SecAggCoordinator, nodes: Mapping[str, SecAggNode]) -> None:
    """Ask everybody who is waited for, once, and hand over what they answer; the leg stays open."""
    leg = coordinator.leg
    for name in coordinator.waiting:
        message = coordinator.message(name)
        if message is None or name not in nodes:
            coordinator.drop(name, "is not there")
            continue
        try:
            answer = nodes[name].answer(leg, message)
        except FedSecureError as error:
            coordinator.drop(name, str(error))
            continue
        try:
            deliver(coordinator, name, leg, answer)
        except (SecAggError, RemoteProtocolError):
            continue  # the coordinator has put it out, and knows why


def deliver(coordinator: SecAggCoordinator, node: str, leg: int, answer: bytes | Masked) -> None:
    """Hand ``answer`` over. Raises as ``SecAggCoordinator.receive``."""
    if not isinstance(answer, Masked):
        coordinator.receive(node, leg, answer)
        return
    if coordinator.begin_vectors(node):
        for chunk in answer.chunks():
            coordinator.receive_chunk(node, chunk)
        coordinator.receive_done(node, answer.done)
