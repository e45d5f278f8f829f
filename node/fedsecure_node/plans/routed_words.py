"""What a plan of FedSPM or FedDRM computes here, what of it leaves and what stays, in words."""

from __future__ import annotations

from collections.abc import Iterator

from fedsecure.plan import Plan
from fedsecure.plan.methods import FedDRMSettings, FedSPMSettings, RoutedSettings
from fedsecure.plan.privacy import DPSGDSettings
from fedsecure.plan.routers import router_of

__all__ = ["routed_words"]


def routed_words(plan: Plan, method: RoutedSettings) -> Iterator[str]:
    """Lines for a privacy officer, before the list of tensors."""
    yield f"computed here each round: {_computed(plan, method)}"
    yield f"leaves in words: {_shared(method)}, each times this node's number of records, and that number"
    nodes = len(plan.cohort.nodes)
    rows = f"{nodes} nodes x {_components(method)} components" if _components(method) > 1 else f"{nodes} nodes"
    yield f"  routing rows ({rows}): trained here for every node, so they tell how these records differ from others"
    if method.share_counts:
        yield (
            "  number of records: leaves by itself before each round; the share of all records that it makes is given "
            "to whoever routes queries"
        )
    if method.parametrisation == "explicit":
        yield (
            "  mass: how many of these records each component accounts for; as shares of all records it is sent to all "
            "nodes"
        )
    if method.diagnostics == "summed":
        yield (
            "  diagnostics: how well the model fits these records (log-likelihood) and how it would route them, "
            "summed over the records"
        )
    else:
        yield "  diagnostics: how well the model fits these records stays here"
    yield f"stays here: {_stays(method)}"


def _components(method: RoutedSettings) -> int:
    return method.components if isinstance(method, FedSPMSettings) else 1


def _computed(plan: Plan, method: RoutedSettings) -> str:
    if isinstance(plan.privacy, DPSGDSettings):
        heads = "heads" if _components(method) > 1 else "head"
        weighed = ", each record weighed among its components" if _components(method) > 1 else ""
        return (
            f"this node's own {heads}, the encoders ({plan.model.name}, {router_of(method, plan.task).name}) and the "
            f"routing rows are trained together on the records for {plan.privacy.steps} noisy steps{weighed}"
        )
    if isinstance(method, FedDRMSettings) and method.backbone == "shared":
        return (
            f"a backbone ({plan.model.name}) with two branches, one for the label and one for the node, and this "
            f"node's own head are trained together on the records for {method.predict.steps} steps"
        )
    heads = f"{_components(method)} heads" if _components(method) > 1 else "head"
    steps = (
        f"this node's own {heads} and the prediction encoder ({plan.model.name}) are trained on the records for "
        f"{method.predict.steps} steps, then the routing encoder ({router_of(method, plan.task).name}) and the routing "
        f"rows for {method.route.steps}"
    )
    if isinstance(method, FedSPMSettings) and method.components > 1:
        when = "once a round" if method.e_step == "round" else "at every batch"
        return f"each record is weighed among {method.components} components {when}; {steps}"
    return steps


def _shared(method: RoutedSettings) -> str:
    if isinstance(method, FedDRMSettings) and method.backbone == "shared":
        return "parameters of the backbone, of both branches and the routing rows"
    if isinstance(method, FedSPMSettings) and method.encoders == "separate" and method.components > 1:
        return f"parameters of {method.components} prediction and {method.components} routing encoders and routing rows"
    return "parameters of the prediction encoder, of the routing encoder and the routing rows"


def _stays(method: RoutedSettings) -> str:
    if _components(method) > 1:
        return f"the {_components(method)} heads that tell the classes apart, and to which component each record counts"
    return "the head that tells the classes apart"
