"""The institution's policy: what its node may take part in and what may leave. Absent, nothing may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from fedsecure.audit_rules import AuditRules
from fedsecure.config import Settings, load_toml, named_pattern, validate
from fedsecure.errors import ConfigError, PolicyError
from fedsecure.files import exists, shown
from fedsecure.plan import Plan
from fedsecure.plan.methods import CondensationSettings, FedAFSettings, LogitClip
from fedsecure.plan.privacy import PerStepSettings, ReleaseSettings
from fedsecure.plan.size import header_bytes, release_bytes
from fedsecure.privacy_rules import PrivacyRules
from fedsecure.text import counted

__all__ = [
    "AuditRules",
    "BroadcastRules",
    "CondensationRules",
    "PlanRules",
    "Policy",
    "PredictionRules",
    "PrivacyRules",
    "ReleaseRules",
    "load_policy",
]

Init = Literal["noise", "avg", "real"]
AnalystName = Annotated[
    str,
    Field(
        pattern=named_pattern(
            r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
            "an analyst's name: lower-case letters, digits and inner hyphens, at most 63",
        )
    ),
]


class PlanRules(Settings):
    """Which plans may be considered at all. ``approval``: ``manual`` (a person types the digest) or ``rule`` (any plan
    that passes every rule of this file is approved without a person). ``min_records_per_class``: records of a class of
    which the node holds fewer are left out of everything that a plan computes and counts, whatever the method.
    ``min_records``: with fewer records than this in the other classes, the node takes part in nothing."""

    methods: tuple[Literal["fedavg", "feddm", "fedaf", "feddrm", "fedspm"], ...] = ()
    approval: Literal["manual", "rule"] = "manual"
    max_rounds: int = Field(100, ge=1)
    min_nodes: int = Field(3, ge=1)
    min_records: int = Field(50, ge=1)
    min_records_per_class: int = Field(10, ge=1)
    shared_randomness: bool = False


class CondensationRules(Settings):
    """Rules for condensed data and class statistics. ``init``: allowed initialisations. ``min_records_per_class``: the
    least ``min_count`` that a plan may condense or average a class from. ``group_rule``: the images of a class, times
    the ``init_n`` records that each is averaged from, may not pass half its records (FedAF page, section 2.9): a plan
    that averages has to keep to it, and of one that starts from noise this node leaves out the classes that are too
    small for it. ``min_init_n``: the fewest records of an average, where ``init`` allows averages. ``fresh_queries``:
    whether the records may be asked anew at every step, by a fresh batch or a fresh network; where not,
    ``max_networks`` bounds the networks that they answer to in a round."""

    init: tuple[Init, ...] = ("noise",)
    max_ipc: int = Field(50, ge=1)
    min_records_per_class: int = Field(10, ge=1)
    group_rule: bool = True
    min_init_n: int = Field(10, ge=1)
    fresh_queries: bool = False
    max_networks: int = Field(20, ge=1)
    max_logit_clip: LogitClip = 100.0


class ReleaseRules(Settings):
    """Rules for what leaves. ``hold``: every release waits until a person says ``node release`` or ``node
    refuse``. ``masks``: ``required`` lets nothing that is to be summed leave but inside a masked sum; a plan that says
    otherwise is refused, and so is the exchange itself. ``plan``: as the plan says. ``max_bytes`` of one release and
    ``max_bytes_per_run`` of all releases of a run: a plan that can need more is refused, and the gate counts them again
    as they leave. ``min_changed_records``: under a model that this node answered under before, in whatever run, it does
    not answer again while fewer records than this changed, but for none at all: after an erasure the difference of both
    answers would be the erased person's (1 asks for nothing; plans with [privacy] have noise instead)."""

    hold: bool = False
    masks: Literal["plan", "required"] = "plan"
    max_bytes: int = Field(64 * 2**20, ge=1)
    max_bytes_per_run: int = Field(2**30, ge=1)
    min_changed_records: int = Field(10, ge=1)


class BroadcastRules(Settings):
    """What a broadcast may look like before it touches a record: a first guard against models built to single a
    person out, and no guarantee, which is noise alone.

    ``max_abs_parameter`` bounds every parameter; ``max_abs_logit`` the mean logits a broadcast model gives on
    local records. Records that stick out under the model are left out of what is computed from it, which tells the
    coordinator less than a refusal would: those whose output, or difference of two outputs, lies further than
    ``max_spread`` robust standard deviations from the median (of their class, where class means leave).
    Where more than a share ``max_left_out`` of the records would be (and more than five), the model is refused. Plans
    with [privacy] have noise instead.
    """

    max_bytes: int = Field(2**30, ge=1)
    max_abs_parameter: float = Field(100.0, gt=0)
    max_abs_logit: float = Field(100.0, gt=0)
    max_spread: float = Field(8.0, gt=0)
    max_left_out: float = Field(0.05, gt=0, le=1)


class PredictionRules(Settings):
    """Who may ask this node what its model makes of a record; every answer tells a little of the records that it
    learnt from. ``analysts``: names of those who may; left out, nobody. ``max_records_per_hour``: of one analyst, over
    all runs, counted from the log. ``coordinator_routed``: whether queries are answered that the coordinator could
    read. ``release.hold`` holds no answer: naming an analyst is the decision."""

    analysts: tuple[AnalystName, ...] = ()
    max_records_per_query: int = Field(64, ge=1, le=65_536)
    max_records_per_hour: int = Field(1000, ge=1)
    coordinator_routed: bool = False


class Policy(Settings):
    """The whole file. Every table left out takes the defaults above, which are the strict ones; ``plans.methods``
    left out allows none, ``prediction.analysts`` nobody, ``privacy.epsilon`` no spending."""

    format: Literal[1]
    plans: PlanRules = PlanRules()
    condensation: CondensationRules = CondensationRules()
    release: ReleaseRules = ReleaseRules()
    broadcast: BroadcastRules = BroadcastRules()
    privacy: PrivacyRules = PrivacyRules()
    prediction: PredictionRules = PredictionRules()
    audit: AuditRules = AuditRules()

    def class_floor(self, plan: Plan) -> int:
        """The fewest records of a class that takes part in ``plan``: ``plans.min_records_per_class``, and by
        ``condensation.group_rule`` twice the images that would be condensed from it."""
        floor, method = self.plans.min_records_per_class, plan.method
        if not isinstance(method, CondensationSettings) or not self.condensation.group_rule:
            return floor
        return max(floor, 2 * method.ipc * (method.init_n if method.init == "avg" else 1))

    def violations(self, plan: Plan) -> list[str]:
        """Each rule that ``plan`` breaks, as ``rule: what the plan asks (allowed: …)``; empty when it may be
        approved."""
        return [
            *self._plan_violations(plan),
            *self._condensation_violations(plan),
            *self._release_violations(plan),
            *self.privacy.violations(plan),
        ]

    def check_plan(self, plan: Plan) -> None:
        """Raise ``PolicyError`` naming every broken rule."""
        if broken := self.violations(plan):
            raise PolicyError(
                f"policy refuses plan {plan.name}: " + "; ".join(broken),
                hint="the coordinator must ask for less, or the institution must change its policy.toml",
            )

    def check_records(self, count: int) -> None:
        """Raise ``PolicyError`` when ``count``, this node's records for a plan, is below ``plans.min_records``: a model
        or an average of so few says too much about each. The message does not hold ``count``."""
        if count < self.plans.min_records:
            raise PolicyError(
                f"plans.min_records: fewer records than the {self.plans.min_records} that this node needs to take part",
                hint="take part with more records, or set another plans.min_records in policy.toml",
            )

    def check_analyst(self, analyst: str, *, readable: bool) -> None:
        """Raise ``PolicyError`` unless ``analyst`` may ask at all, and in this form: ``readable`` when the coordinator
        could read the query."""
        if analyst not in self.prediction.analysts:
            raise PolicyError(
                f"prediction.analysts: the institution answers no queries of analyst {analyst}",
                hint="its policy.toml names who may ask",
            )
        if readable and not self.prediction.coordinator_routed:
            raise PolicyError(
                "prediction.coordinator_routed: the institution answers no queries that the coordinator can read",
                hint="route at your own side, which seals the query to the node",
            )

    def check_query(self, analyst: str, records: int, answered: int) -> None:
        """Raise ``PolicyError`` when ``records`` are too many for one query, or too many after the ``answered`` ones of
        this analyst in the last hour."""
        rules = self.prediction
        if records > rules.max_records_per_query:
            raise PolicyError(
                f"prediction.max_records_per_query: {counted(records, 'record')} "
                f"(allowed: <= {rules.max_records_per_query})",
                hint="ask in smaller parts",
            )
        if answered + records > rules.max_records_per_hour:
            raise PolicyError(
                f"prediction.max_records_per_hour: {counted(records, 'record')} after {answered} of analyst {analyst} "
                f"in the last hour (allowed: <= {rules.max_records_per_hour} together)",
                hint="wait, or ask the institution for a higher limit",
            )

    def _plan_violations(self, plan: Plan) -> Iterator[str]:
        rules = self.plans
        if plan.method.name not in rules.methods:
            yield f"plans.methods: {plan.method.name} (allowed: {', '.join(rules.methods) or 'none'})"
        if plan.rounds > rules.max_rounds:
            yield f"plans.max_rounds: {plan.rounds} rounds (allowed: <= {rules.max_rounds})"
        if plan.cohort.min_nodes < rules.min_nodes:
            yield f"plans.min_nodes: sums over {plan.cohort.min_nodes} nodes (allowed: >= {rules.min_nodes})"
        if plan.randomness == "plan" and not rules.shared_randomness:
            yield "plans.shared_randomness: 'plan' shows the coordinator this node's draws (allowed: 'private')"

    def _condensation_violations(self, plan: Plan) -> Iterator[str]:
        method, rules = plan.method, self.condensation
        if not isinstance(method, CondensationSettings):
            return
        if method.init not in rules.init:
            yield f"condensation.init: {method.init} (allowed: {', '.join(rules.init) or 'none'})"
        if method.ipc > rules.max_ipc:
            yield f"condensation.max_ipc: {method.ipc} images per class (allowed: <= {rules.max_ipc})"
        if method.min_count < rules.min_records_per_class:
            yield (
                f"condensation.min_records_per_class: classes of {method.min_count} records "
                f"(allowed: >= {rules.min_records_per_class})"
            )
        if rules.group_rule and method.init == "avg" and 2 * method.ipc * method.init_n > method.min_count:
            yield (
                f"condensation.group_rule: {method.ipc} images averaged from {method.init_n} records each, of classes "
                f"from {method.min_count} records (allowed: min_count >= 2 * ipc * init_n = "
                f"{2 * method.ipc * method.init_n})"
            )
        if method.init == "avg" and method.init_n < rules.min_init_n:
            yield f"condensation.min_init_n: averages of {method.init_n} records (allowed: >= {rules.min_init_n})"
        if not rules.fresh_queries:
            yield from self._query_violations(plan, method)
        if isinstance(method, FedAFSettings) and rules.max_logit_clip != "none":
            if method.logit_clip == "none":
                yield f"condensation.max_logit_clip: logits unclipped (allowed: logit_clip <= {rules.max_logit_clip:g})"
            elif method.logit_clip > rules.max_logit_clip:
                yield f"condensation.max_logit_clip: {method.logit_clip:g} (allowed: <= {rules.max_logit_clip:g})"

    def _query_violations(self, plan: Plan, method: CondensationSettings) -> Iterator[str]:
        """How often the records may be asked in a round, where they may not be at every step. With [privacy] it is that
        which says how often they are."""
        anew, most, networks = [], self.condensation.max_networks, method.networks
        if isinstance(plan.privacy, ReleaseSettings):
            networks = plan.privacy.networks
        elif isinstance(plan.privacy, PerStepSettings):
            anew.append("privacy.kind 'per-step' (allowed: 'release')")
        elif method.real_means == "batch":
            anew.append("real_means 'batch' (allowed: 'exact')")
        if plan.privacy is None and method.networks == method.steps > 1:
            how = "'step'" if method.resample == "step" else f"'interval' of {method.resample_interval}"
            anew.append(f"resample {how} (allowed: 'round', or 'interval' of two steps and more)")
        if anew:
            yield f"condensation.fresh_queries: the records are asked anew at every step: {' and '.join(anew)}"
        if networks > most:
            yield f"condensation.max_networks: {networks} networks a round (allowed: <= {most})"

    def _release_violations(self, plan: Plan) -> Iterator[str]:
        """What a node may have to send, before anything is computed."""
        rules, most = self.release, release_bytes(plan) + header_bytes(plan)
        if rules.masks == "required" and plan.secagg == "off" and plan.method.name != "feddm":  # which sums nothing
            yield (
                "release.masks: secagg 'off' shows the coordinator what this node adds to each sum "
                "(allowed: 'required', 'optional')"
            )
        if most > rules.max_bytes:
            yield f"release.max_bytes: a release of up to {most} bytes (allowed: <= {rules.max_bytes})"
        if most * plan.rounds > rules.max_bytes_per_run:
            yield (
                f"release.max_bytes_per_run: up to {most * plan.rounds} bytes in {plan.rounds} rounds "
                f"(allowed: <= {rules.max_bytes_per_run})"
            )


def load_policy(path: Path) -> Policy:
    """Read ``policy.toml``. Raises ``PolicyError`` when it is absent (no policy, no run), ``ConfigError`` when it
    is wrong."""
    try:
        if not exists(path, ConfigError):
            raise PolicyError(
                f"{path}: no policy, so nothing is allowed", hint="write policy.toml; see policy.example.toml"
            )
        return validate(Policy, load_toml(path), shown(path))
    except ConfigError as error:
        raise ConfigError(str(error), hint="until it is right, nothing is allowed") from None
