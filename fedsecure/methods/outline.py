"""What a method sends, exchange by exchange, from its plan alone: no network is built, and PyTorch is not imported.

A method's own schemas are these; a plan is shown and checked by them without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedsecure.errors import ConfigError
from fedsecure.methods.averaging import MAX_RECORDS, RECORDS, weighted_specs
from fedsecure.parameter_specs import PARAMETER_BOUND, specs_of, state_specs
from fedsecure.plan import Plan
from fedsecure.plan.methods import (
    CondensationSettings,
    FedAFSettings,
    FedDRMSettings,
    FedSPMSettings,
    RoutedSettings,
)
from fedsecure.plan.parameters import encoder_shapes, feature_width, normed_linear
from fedsecure.plan.privacy import CondensationPrivacy, DPSGDSettings
from fedsecure.plan.routers import router_of
from fedsecure.schema import Axis, Schema, TensorSpec

__all__ = [
    "CONDENSATION",
    "LEAST_LOG",
    "LOGIT_BOUND",
    "MAX_CLASS_RECORDS",
    "ROUND",
    "SENT",
    "STATISTICS",
    "Outline",
    "check_projection",
    "components_of",
    "condensed_specs",
    "encoders_of",
    "model_specs",
    "outline_of",
    "shared_specs",
    "shares_noise",
]

#: The exchanges of a round of FedAF by ``sync``, and what each does: sum statistics, release condensed data, or both
#: at once.
STATISTICS, CONDENSATION, ROUND = "statistics", "condensation", "round"
#: No log-likelihood of one record is sent that is below minus this (nats).
LEAST_LOG = 1e4
#: Prefix of the shared parameters in a contribution.
SENT = "shared."
#: Range of a mean logit where the plan sets no ``logit_clip``.
LOGIT_BOUND = 1e6
#: No node holds more records of one class than this (bounds the range of weighted sums).
MAX_CLASS_RECORDS = 10_000_000


def _statistics_specs(settings: FedAFSettings, num_classes: int) -> tuple[TensorSpec, ...]:
    """The summed half. Rows of classes that a node does not hold are zero, so that sums run over holders alone.

    ``class_weight`` is 1 for a held class or, with ``averaging = "holders_weighted"``, its number of records; the rows
    of the other two are multiplied by it.
    """
    weighted = settings.averaging == "holders_weighted"
    most = MAX_CLASS_RECORDS if weighted else 1
    bound = (settings.max_logit or LOGIT_BOUND) * most
    weight = "records of each held class" if weighted else "1 for each held class"
    times = ", times its records" if weighted else ""
    square = (num_classes, num_classes)
    return (
        TensorSpec("mean_logits", "float32", square, -bound, bound, f"mean logits of each held class{times}", "logits"),
        TensorSpec("soft_labels", "float32", square, 0.0, float(most), f"soft label of each held class{times}"),
        TensorSpec("class_weight", "int64", (num_classes,), 0, most, weight, "class_weight"),
    )


class Outline:
    """Exchange -> schema, in the order of a round: as ``fedsecure.method.Disclosed`` has it."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._schemas = dict(schemas)

    @property
    def exchanges(self) -> tuple[str, ...]:
        """Names of the exchanges of one round, in order."""
        return tuple(self._schemas)

    def schema(self, exchange: str) -> Schema:
        """Names, shapes, dtypes and ranges of both halves of a contribution. ``KeyError`` for no such exchange."""
        return self._schemas[exchange]


def outline_of(plan: Plan) -> Outline:
    """Of the method that a plan names. Raises ``ConfigError`` when its projection has more dimensions than the network
    has features."""
    check_projection(plan)
    settings = plan.method
    if isinstance(settings, RoutedSettings):
        return Outline(_routed(plan, settings))
    if isinstance(settings, FedAFSettings):
        statistics = _statistics_specs(settings, len(plan.task.classes))
        condensed = condensed_specs(plan, settings)
        if settings.sync == "two_phase":
            return Outline({STATISTICS: Schema(summed=statistics), CONDENSATION: Schema(released=condensed)})
        return Outline({ROUND: Schema(summed=statistics, released=condensed)})
    if isinstance(settings, CondensationSettings):
        return Outline({ROUND: Schema(released=condensed_specs(plan, settings))})
    return Outline({ROUND: Schema(summed=(*weighted_specs(model_specs(plan)), RECORDS))})


def model_specs(plan: Plan) -> tuple[TensorSpec, ...]:
    """The one global model of FedAvg, FedDM and FedAF, as ``model.<parameter>``."""
    return tuple(
        TensorSpec(f"model.{s.name}", s.dtype, s.shape, s.low, s.high, s.what, s.role)
        for s in state_specs(plan.model, plan.task)
    )


def check_projection(plan: Plan) -> None:
    """Raise ``ConfigError`` when features are projected to more dimensions than they have: only noise would grow."""
    width = plan.privacy.projection if isinstance(plan.privacy, CondensationPrivacy) else None
    if width is not None and width > (features := feature_width(plan.model, plan.task)):
        raise ConfigError(
            f"plan {plan.name}: privacy.projection {width} is more than the {features} features of its network",
            hint="lower it, or leave it out: then there is no projection",
        )


def condensed_specs(plan: Plan, settings: CondensationSettings) -> tuple[TensorSpec, ...]:
    """``images`` and ``labels``: ``ipc`` for each class that a node holds; none at all is legal (it holds no class).

    Images are in the network's standardised units, float32 within ±``pixel_bound``; labels, int64, index the plan's
    classes.
    """
    num_classes = len(plan.task.classes)
    axis = Axis("condensed", 0, num_classes * settings.ipc)
    bound = settings.pixel_bound
    shape = plan.task.feature_shape
    return (
        TensorSpec("images", "float32", (axis, *shape), -bound, bound, "condensed records, standardised", "condensed"),
        TensorSpec("labels", "int64", (axis,), 0, num_classes - 1, "the class of each condensed record", "labels"),
    )


def components_of(settings: RoutedSettings) -> int:
    """C: mixture components of a node."""
    return settings.components if isinstance(settings, FedSPMSettings) else 1


def encoders_of(settings: RoutedSettings) -> int:
    """Encoders of either kind: one for all components, or one for each."""
    separate = isinstance(settings, FedSPMSettings) and settings.encoders == "separate"
    return components_of(settings) if separate else 1


def shares_noise(plan: Plan) -> bool:
    """Whether the noise on ``mass`` is shared by the cohort: it is whole in the masked sum alone."""
    return isinstance(plan.privacy, DPSGDSettings) and plan.privacy.shared_noise(len(plan.cohort.nodes)) is not None


def shared_specs(plan: Plan, settings: RoutedSettings) -> tuple[TensorSpec, ...]:
    """The shared parameters of FedSPM and FedDRM: encoders, or a backbone and its branches, then the routing layer."""
    m, c, b = len(plan.cohort.nodes), components_of(settings), PARAMETER_BOUND
    if isinstance(settings, FedDRMSettings) and settings.backbone == "shared":
        width, of = settings.branch, "node"
        branch = normed_linear(feature_width(plan.model, plan.task), width)
        specs = [*specs_of(encoder_shapes(plan.model, plan.task), "backbone.", "backbone")]
        for which in ("label", "node"):
            specs += specs_of(branch, f"{which}.", f"{which} branch")
    else:
        router, of = router_of(settings, plan.task), "component"
        width, specs = feature_width(router, plan.task), []
        for prefix, what, network in (("theta", "prediction", plan.model), ("nu", "routing", router)):
            for e in range(encoders_of(settings)):
                specs += specs_of(encoder_shapes(network, plan.task), f"{prefix}.{e}.", f"{what} encoder")
    specs.append(TensorSpec("xi", "float32", (m, c, width), -b, b, f"routing weights of every {of}"))
    specs.append(TensorSpec("bias", "float32", (m, c), -b, b, f"routing bias of every {of}"))
    return tuple(specs)


def _routed(plan: Plan, settings: RoutedSettings) -> dict[str, Schema]:
    """``update``, and before it ``counts`` where the nodes' numbers of records are shared. What is summed; nothing is
    released as it is."""
    m = len(plan.cohort.nodes)
    pairs, found = (m, components_of(settings)), dict[str, Schema]()
    if settings.share_counts:
        what = "number of records of each node (this node's own; zero for the others)"
        found["counts"] = Schema(summed=(TensorSpec("node_records", "int64", (m,), 0, MAX_RECORDS, what, "records"),))
    specs = [*weighted_specs(shared_specs(plan, settings), SENT)]
    if settings.parametrisation == "explicit":
        what = "records of each component (this node's own; zero for the others)"
        specs.append(TensorSpec("mass", "float64" if shares_noise(plan) else "float32", pairs, 0, MAX_RECORDS, what))
    if settings.diagnostics == "summed":
        most = float(MAX_RECORDS)
        specs += [
            TensorSpec("posterior", "float32", pairs, 0, most, "sum of P(node, component | x) over the records"),
            TensorSpec("responsibility", "float32", pairs, 0, most, "sum of this node's responsibilities"),
            TensorSpec("log_likelihood", "float32", (1,), -LEAST_LOG * most, 0, "sum of log P(node, y | x)"),
        ]
    found["update"] = Schema(summed=(*specs, RECORDS))
    return found
