"""What a private plan costs this node's records at several noise multipliers, against its ledger and its policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedsecure.errors import ConfigError, PolicyError
from fedsecure.files import exists
from fedsecure.plan import Plan, load_plan
from fedsecure.plan.privacy import AnyPrivacySettings
from fedsecure.policy import Policy
from fedsecure.privacy.accounting import default_delta, epsilon
from fedsecure.privacy.calibration import sigma_for, with_sigma
from fedsecure.privacy.costs import affordable_rounds, plan_spends
from fedsecure.privacy.counting import taking_part_counts
from fedsecure.privacy.shares import SharedHistory, mechanism_of, shared_noise_of
from fedsecure.privacy.spend import Spend, merged
from fedsecure.text import counted
from fedsecure_node.assemble import check_ledger
from fedsecure_node.auditing.holdout import HeldOut
from fedsecure_node.plans.institution import read_policy
from fedsecure_node.plans.localdata import LocalData
from fedsecure_node.settings import NodeSettings
from fedsecure_node.spending.affordable import CostOf
from fedsecure_node.spending.begun import begun_runs_at
from fedsecure_node.spending.purse import limits_of
from fedsecure_node.store.store import Store

__all__ = ["DpTable", "Row", "dp_table"]

#: Noise multipliers that are shown when none are asked for, in units of the plan's own.
AROUND = (0.5, 0.7, 1.0, 1.5, 2.0, 4.0)
#: The largest that a plan may have.
MOST_SIGMA = 1e6


@dataclass(frozen=True, slots=True)
class Row:
    """What the plan costs with noise multiplier ``sigma``. ``epsilon``: of all its rounds; ``total``: with what was
    spent before, and what other runs that go on still spend. ``rounds``: how many the cap would pay for, ``None``
    without one. ``local``: of a plan whose noise a cohort shares, what holds of ``epsilon`` if more nodes collude than
    it allows for."""

    sigma: float
    epsilon: float
    total: float
    rounds: int | None
    local: float | None

    def cells(self) -> tuple[str, ...]:
        """For people."""
        return (
            f"{self.sigma:g}",
            _told(self.epsilon),
            _told(self.total),
            "-" if self.rounds is None else str(self.rounds),
            *(() if self.local is None else (_told(self.local),)),
        )

    def to_json(self) -> dict[str, Any]:
        """For ``--json``; an epsilon without bound is ``null``."""
        told = {name: _finite(value) if isinstance(value, float) else value for name, value in asdict(self).items()}
        local = told.pop("local")
        return told if self.local is None else {**told, "epsilon_local": local}


@dataclass(frozen=True, slots=True)
class DpTable:
    """Costs of a plan for ``records`` records at ``delta``. ``spent``: what the ledger holds of them; ``cap``: the
    policy's, ``None`` where there is none. ``refused``: rules that the plan breaks. ``begun``: how many other runs go
    on at this node; ``then``: as ``spent``, when they are over, which the totals and rounds of ``rows`` are with."""

    plan: Plan
    privacy: AnyPrivacySettings
    records: int
    delta: float
    spent: float
    cap: float | None
    rows: tuple[Row, ...]
    refused: tuple[str, ...]
    begun: int
    then: float

    def lines(self) -> list[str]:
        """For people."""
        plan, cap = self.plan, "the policy sets no cap" if self.cap is None else f"the policy's cap is {self.cap:g}"
        shared = shared_noise_of(self.privacy, len(set(plan.cohort.nodes)))
        rounds, last = f"rounds within the cap (of {plan.rounds})", () if shared is None else ("if more collude",)
        header: tuple[str, ...] = ("sigma", "epsilon of the plan", "with what was spent", rounds, *last)
        table = [header, *(row.cells() for row in self.rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(header))]
        marks = [" ", *("*" if row.sigma == self.privacy.sigma else " " for row in self.rows)]
        return [
            f"plan {plan.name}, digest {plan.digest()}",
            f"{plan.method.name} by {self.privacy.kind}, {counted(plan.rounds, 'round')}, {self.privacy.noise} noise",
            f"this node: {counted(self.records, 'record')}, delta {self.delta:.3g}",
            f"spent before: epsilon {_told(self.spent)}; {cap}",
            *self._others(),
            *(
                f"{mark} " + "   ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
                for mark, line in zip(marks, table, strict=True)
            ),
            "* the plan's own. Counting the classes, once a run, is in every row.",
            *(() if shared is None else (f"mixing weights: epsilon is so if {shared.words}.",)),
        ]

    def _others(self) -> tuple[str, ...]:
        if not self.begun:
            return ()
        runs = counted(self.begun, "run")
        return (f"with the rest of {runs} begun here: epsilon {_told(self.then)}, which counts below",)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        shared = shared_noise_of(self.privacy, len(set(self.plan.cohort.nodes)))
        return {
            "name": self.plan.name,
            "digest": self.plan.digest(),
            "method": self.plan.method.name,
            "mechanism": self.privacy.kind,
            "noise": self.privacy.noise,
            "sigma": self.privacy.sigma,
            "rounds": self.plan.rounds,
            "records": self.records,
            "delta": self.delta,
            "spent": _finite(self.spent),
            "begun": self.begun,
            "then": _finite(self.then),
            "cap": self.cap,
            "refused": list(self.refused),
            "trust": None if shared is None else shared.words,
            "costs": [row.to_json() for row in self.rows],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _told(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "unbounded"


def dp_table(settings: NodeSettings, plan_name: str, sigmas: Sequence[float], target: float | None = None) -> DpTable:
    """Read the plan, a file or the digest of one that was offered, the records, the policy and the ledger; spends
    nothing. ``sigmas``: shown beside the plan's; if none are given, some around it. ``target``: the sigma with which
    the whole plan would cost this epsilon is shown, too.

    Raises ``ConfigError`` for a plan without [privacy], a sigma that no plan could have or a target that no noise
    reaches, ``DataError`` for records that do not fit the plan, ``PrivacyBudgetExceeded`` when the ledger cannot be
    relied on."""
    plan = _plan(settings, plan_name)
    if plan.privacy is None:
        raise ConfigError(
            f"plan {plan.name}: asks for no differential privacy, so it has no epsilon",
            hint="give it a table [privacy]; see docs/reference.md",
        )
    if wrong := [sigma for sigma in sigmas if not 0 < sigma <= MOST_SIGMA]:
        raise ConfigError(f"--sigma {wrong[0]:g}: out of range (allowed: > 0 and <= {MOST_SIGMA:g})")
    own, policy = plan.privacy.sigma, _policy(settings)
    data = LocalData(settings.data, lambda lines: None)
    rules = policy or Policy(format=1)
    held_out = HeldOut(data, settings.holdout)
    records = held_out.split(plan, rules).rest
    counts = taking_part_counts(tuple(int(n) for n in records.counts()), rules.class_floor(plan))
    delta, cap, refused = _limits(policy, plan, len(records))
    check, begun = partial(check_ledger, settings), partial(begun_runs_at, settings)
    cost = CostOf(settings.ledger, data, held_out, check=check, begun=begun, node=settings.node)
    history, others = cost.history(plan), cost.others(plan, rules, len(records))
    expected = merged((*history, *(spend for other in others for spend in other)))
    asked = {own, *(sigmas or (min(own * factor, MOST_SIGMA) or own for factor in AROUND))}
    shown = sorted(asked if target is None else asked | {_sigma_for(plan, len(records), counts, target, delta)})
    rows = tuple(_row(with_sigma(plan, sigma), len(records), counts, expected, cap, delta) for sigma in shown)
    spent, then = epsilon(history, delta), epsilon(expected, delta)
    return DpTable(plan, plan.privacy, len(records), delta, spent, cap, rows, refused, len(others), then)


def _plan(settings: NodeSettings, name: str) -> Plan:
    if exists(Path(name), ConfigError) or set(name.strip().lower()) - set("0123456789abcdef"):
        return load_plan(Path(name))[0]
    with Store(settings.store, create=False) as store:
        return store.plans.resolve(name).plan()


def _policy(settings: NodeSettings) -> Policy | None:
    try:
        return read_policy(settings.policy).policy
    except PolicyError:  # there is none, so nothing is allowed; what a plan would cost can be told all the same
        return None


def _limits(policy: Policy | None, plan: Plan, records: int) -> tuple[float, float | None, tuple[str, ...]]:
    """delta, cap, and the rules that ``plan`` breaks."""
    if policy is None:
        return default_delta(records), None, ("there is no policy, so nothing is allowed",)
    refused, rules = tuple(policy.violations(plan)), policy.privacy
    if rules.epsilon is None:  # one of the rules in ``refused``
        return rules.delta or default_delta(records), None, refused
    try:
        limits = limits_of(policy, records)
    except PolicyError as error:
        return default_delta(records), rules.epsilon, (*refused, str(error))
    return limits.delta, limits.cap, refused


def _sigma_for(plan: Plan, records: int, counts: Sequence[int], target: float, delta: float) -> float:
    found = sigma_for(plan, records, counts, target, delta)
    if math.isinf(found):
        raise ConfigError(
            f"--epsilon {target:g}: no sigma reaches it; what the plan noises otherwise costs more",
            hint="ask for more, or raise privacy.count_sigma in the plan (or mixing_sigma, where it has one)",
        )
    return found


def _row(
    plan: Plan, records: int, counts: Sequence[int], history: tuple[Spend, ...], cap: float | None, delta: float
) -> Row:
    assert plan.privacy is not None
    whole = plan_spends(plan, records, counts)
    rounds = None if cap is None else affordable_rounds(plan, records, counts, history, cap, delta)
    total = epsilon((*history, *whole), delta)
    return Row(plan.privacy.sigma, epsilon(whole, delta), total, rounds, _local(plan, whole, delta))


def _local(plan: Plan, whole: Sequence[Spend], delta: float) -> float | None:
    assert plan.privacy is not None
    nodes, shared = len(set(plan.cohort.nodes)), SharedHistory()
    for spend in whole:
        shared.add((spend,), mechanism_of(plan.privacy, nodes, (spend,)))
    found = shared.trust(delta, epsilon)
    return None if found is None else found.epsilon_local
