"""A plan in words: what would be computed, what would leave, how much of it, and what the policy says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fedsecure.masked_plan import masked_exchanges
from fedsecure.method import Disclosed
from fedsecure.plan import Plan
from fedsecure.plan.methods import CondensationSettings, FedAvgSettings, RoutedSettings
from fedsecure.plan.privacy import DPSGDSettings, ReleaseSettings
from fedsecure.plan.task import ImageTask
from fedsecure.policy import Policy
from fedsecure.schema import Axis, Schema, TensorSpec
from fedsecure_node.plans.audit_words import audit_lines
from fedsecure_node.plans.departures import departure_lines
from fedsecure_node.plans.masked_words import mask_lines, sum_words
from fedsecure_node.plans.private_words import guarantee_line, private_words
from fedsecure_node.plans.routed_words import routed_words
from fedsecure_node.text import printable

__all__ = ["describe", "duration", "floor_words", "human_bytes"]

#: Columns, classes or analysts named in one line; the rest are counted.
MOST_NAMES = 100


def human_bytes(count: int) -> str:
    """A size in words: ``812 B``, ``3.4 KiB``, ``12.0 MiB``."""
    if count < 1024:
        return f"{count} B"
    power = min(int(math.log(count, 1024)), 4)
    return f"{count / 1024**power:.1f} {'KMGT'[power - 1]}iB"


def floor_words(least: int) -> str:
    """What ``plans.min_records_per_class`` means, without its full stop."""
    if least <= 1:
        return "Classes: a class of a single record takes part"
    return f"Classes of fewer than {least} records at this institution are left out: nothing is computed from them"


def duration(seconds: float) -> str:
    """A time in words, in its two largest units: ``45 s``, ``1 h``, ``1 h 30 min``, ``2 d``."""
    left, parts = round(seconds), []
    if left < 1:
        return f"{seconds:g} s"
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size} {name}")
        left %= size
    return " ".join(parts[:2])


def describe(
    plan: Plan,
    policy: Policy | None,
    method: Disclosed,
    *,
    policy_fault: str = "",
    cost: str = "",
    spending: Sequence[str] = (),
) -> list[str]:
    """Lines for a privacy officer. ``policy`` is ``None`` when there is no usable one, and ``policy_fault`` says why.
    ``method``: the plan's, or its outline. ``cost``: what a private plan costs this node's data set, in words, where
    that is known; ``spending``: rules that this would break. Raises ``ConfigError`` when what the plan sums cannot be
    masked as it asks."""
    lines = [
        f"plan {plan.name}, digest {plan.digest()}",
        *_what(plan),
        *_computed(plan),
        *private_words(plan),
        *_leaves(plan, policy, method),
        guarantee_line(plan, cost),
        *_afterwards(plan, policy),
        *_preset(plan),
        *_verdict(plan, policy, policy_fault, spending),
    ]
    return [printable(line) for line in lines]  # class and column names come from the coordinator


def _what(plan: Plan) -> Iterator[str]:
    task = plan.task
    if isinstance(task, ImageTask):
        channels, height, width = task.shape
        yield f"records: images of {height} x {width} pixels, {channels} channel{'s' * (channels > 1)}"
    else:
        yield f"records: rows of {len(task.columns)} columns ({_some([c.name for c in task.columns])})"
    yield f"classes ({len(task.classes)}): {_some(task.classes)}"
    named = f": {', '.join(plan.cohort.nodes)}" if plan.cohort.nodes else " (any enrolled node that approves)"
    yield f"cohort: at least {plan.cohort.min_nodes} nodes a round{named}"
    yield (
        f"deadlines: joining closes {duration(plan.deadlines.join)} after the run starts: who has not approved the "
        "plan by then is not among its first nodes"
    )
    yield (
        f"deadlines: each exchange closes {duration(plan.deadlines.exchange)} after it begins: what is not computed, "
        "decided on if it is held, and sent by then is left out"
    )
    yield f"rounds: {plan.rounds}, model: {plan.model.name}, method: {plan.method.name}"


def _computed(plan: Plan) -> Iterator[str]:
    method = plan.method
    if isinstance(method, CondensationSettings):
        kind = "images" if isinstance(plan.task, ImageTask) else "rows"
        averages = f"averages of {method.init_n} real records"
        start = {"noise": "noise", "avg": averages, "real": "real records"}[method.init]
        drawn = plan.privacy.networks if isinstance(plan.privacy, ReleaseSettings) else method.networks
        networks = f"{drawn} network{'s' * (drawn > 1)}"
        yield (
            f"computed here each round: {method.ipc} condensed {kind} for each class of at least {method.min_count} "
            f"records, in {method.steps} steps on {networks}, starting from {start}"
        )
    elif isinstance(method, FedAvgSettings):
        length = f"{method.local_epochs} epochs" if method.local_epochs else f"{method.local_steps} steps"
        if isinstance(plan.privacy, DPSGDSettings):
            length = f"{plan.privacy.steps} noisy steps"
        yield f"computed here each round: the model is trained on the records for {length}"
    elif isinstance(method, RoutedSettings):
        yield from routed_words(plan, method)
    if plan.randomness == "plan":
        yield "randomness: from the plan, so the coordinator knows every draw that this node makes"
    else:
        yield "randomness: private to this node"


def _leaves(plan: Plan, policy: Policy | None, method: Disclosed) -> Iterator[str]:
    most = 0
    for exchange in method.exchanges:
        schema = method.schema(exchange)
        most += schema.max_nbytes
        yield f"leaves each round, exchange {exchange!r} (at most {human_bytes(schema.max_nbytes)}):"
        halves = [("summed", s) for s in schema.summed] + [("released", s) for s in schema.released]
        yield from (f"  - {_tensor(spec)}" for _, spec in halves[:40])
        if len(halves) > 40:
            rest = sum(s.max_nbytes for _, s in halves[40:])
            yield f"  - and {len(halves) - 40} more tensors (at most {human_bytes(rest)})"
        yield from _learns(schema, sum_words(plan, policy))
    yield from mask_lines(plan, masked_exchanges(plan, method), policy)
    yield f"leaves in the whole run: at most {human_bytes(most * plan.rounds)} of tensors"


def _afterwards(plan: Plan, policy: Policy | None) -> Iterator[str]:
    """Of a method that routes queries: who may ask this node's model once the run is over."""
    if not isinstance(plan.method, RoutedSettings):
        return
    rules = policy.prediction if policy else None
    if rules is None or not rules.analysts:
        yield "after the run: nobody may ask this node's model (prediction.analysts in policy.toml names who may)"
        return
    sight = "also where the coordinator can read them" if rules.coordinator_routed else "sealed from the coordinator"
    yield (
        f"after the run: {_some(rules.analysts)} may ask this node's model about records of their own, at most"
        f" {rules.max_records_per_hour} an hour each, {sight}; each answer tells a little of the records here"
    )


def _learns(schema: Schema, of_sums: str) -> Iterator[str]:
    """What is revealed of each half, in words; ``of_sums``: of the summed one."""
    if schema.summed:
        yield f"  of {_names(schema.summed)}: {of_sums}"
    if schema.released:
        yield f"  of {_names(schema.released)}: the coordinator sees every value as it is"


def _names(specs: tuple[TensorSpec, ...]) -> str:
    return _some([s.name for s in specs], 6)


def _some(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """The first ``most`` names, and how many more there are: nothing is left out in silence."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _tensor(spec: TensorSpec) -> str:
    lengths = [f"up to {d.high}" if isinstance(d, Axis) else str(d) for d in spec.shape]
    size = " x ".join(lengths) or "one number"
    return f"{spec.name}: {spec.what} ({np.dtype(spec.dtype).name}, {size}, at most {human_bytes(spec.max_nbytes)})"


def _preset(plan: Plan) -> Iterator[str]:
    if plan.preset == "paper":
        yield "preset: paper - the papers' settings, made for accuracy; they let more be learned of single records"
    else:
        yield "preset: protective - settings chosen so that less can be learned of single records"
    lines = list(departure_lines(plan))
    yield from lines or ["departures from the preset: none"]


def _verdict(plan: Plan, policy: Policy | None, fault: str, spending: Sequence[str]) -> Iterator[str]:
    if policy is None:
        yield f"policy: NO - {fault or 'there is no policy'}; nothing is allowed"
        return
    broken = {line.split(":", 1)[0]: line for line in (*spending, *policy.violations(plan))}
    yield f"policy: {'NO' if broken else 'yes'}, rule by rule:"
    for rule in _rules(plan):
        yield f"  - NO  {broken[rule]}" if rule in broken else f"  - yes {rule}"
    for rule, line in broken.items():
        if rule not in _rules(plan):
            yield f"  - NO  {line}"
    hold = "every release waits for a person" if policy.release.hold else "releases leave without waiting for a person"
    yield floor_words(policy.class_floor(plan))
    yield from audit_lines(plan, policy)
    yield f"records: with fewer than {policy.plans.min_records} in the other classes, this node does not take part"
    yield (
        f"at the gate: at most {human_bytes(policy.release.max_bytes)} a release, "
        f"{human_bytes(policy.release.max_bytes_per_run)} a run; {hold}"
    )


def _rules(plan: Plan) -> list[str]:
    rules = ["plans.methods", "plans.max_rounds", "plans.min_nodes", "plans.shared_randomness"]
    if isinstance(plan.method, CondensationSettings):
        rules += [
            f"condensation.{r}"
            for r in (
                "init", "max_ipc", "min_records_per_class", "group_rule", "min_init_n", "fresh_queries",
                "max_networks", "max_logit_clip",
            )
            if r != "max_logit_clip" or plan.method.name == "fedaf"
        ]  # fmt: skip
    rules += ["release.masks", "release.max_bytes", "release.max_bytes_per_run", "privacy.required"]
    if plan.privacy is not None:
        rules += ["privacy.epsilon", "privacy.mechanisms", "privacy.noise", "privacy.shares", "privacy.min_sigma"]
    return rules
