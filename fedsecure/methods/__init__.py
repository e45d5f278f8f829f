"""Methods: only what differs between them. ``build_method`` is the registry; torch is imported when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedsecure.plan.methods import FedAFSettings, FedAvgSettings, FedDMSettings, FedDRMSettings

if TYPE_CHECKING:
    from fedsecure.method import Method
    from fedsecure.plan import Plan

__all__ = ["build_method"]


def build_method(plan: Plan) -> Method:
    """The method that a plan names, with its settings, network and schemas.

    Raises ``ConfigError`` when the plan's network does not go with its task.
    """
    if isinstance(plan.method, FedAFSettings):
        from fedsecure.methods.fedaf import FedAF

        return FedAF(plan, plan.method)
    if isinstance(plan.method, FedDMSettings):
        from fedsecure.methods.feddm import FedDM

        return FedDM(plan, plan.method)
    if isinstance(plan.method, FedAvgSettings):
        from fedsecure.methods.fedavg import FedAvg

        return FedAvg(plan, plan.method)
    if isinstance(plan.method, FedDRMSettings) and plan.method.backbone == "shared":
        from fedsecure.methods.feddrm import FedDRMShared

        return FedDRMShared(plan, plan.method)
    from fedsecure.methods.fedspm import FedSPM

    return FedSPM(plan, plan.method)
