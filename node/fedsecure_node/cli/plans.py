"""``fedsecure node plans | approve | refuse-plan``: what the coordinator asks for, and what the institution says to
it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsecure.commands.output import JsonOption, emit_json, say
from fedsecure.errors import FedSecureError
from fedsecure.files import quoted
from fedsecure_node.cli.options import DirOption

if TYPE_CHECKING:
    from fedsecure_node.plans.approvals import Verdict
    from fedsecure_node.settings import NodeSettings
    from fedsecure_node.spending.affordable import CostOf
    from fedsecure_node.store.planbook import SeenPlan
    from fedsecure_node.store.runbook import Run
    from fedsecure_node.store.store import Store

__all__ = ["approve", "plans", "refuse_plan"]

DigestArgument = Annotated[str, typer.Argument(metavar="DIGEST", help="The plan's digest, or at least 8 digits of it.")]


def plans(folder: DirOption = Path(), as_json: JsonOption = False) -> None:
    """Show every plan that was offered, in words, with the policy's verdict on it now."""
    from fedsecure_node.assemble import cost_of
    from fedsecure_node.plans.approvals import verdict
    from fedsecure_node.plans.institution import PolicyWatch
    from fedsecure_node.settings import load_settings
    from fedsecure_node.store.store import Store

    settings = load_settings(folder)
    with Store(settings.store, create=False) as store:
        seen = store.plans.all()
        runs = {run.digest: run for run in store.runs.all()}
        warnings = _warnings(settings, store, seen, runs)
    watch, cost = PolicyWatch(settings.policy), cost_of(settings)
    shown = []
    for found in seen:
        run = runs.get(found.digest)
        judged = verdict(found.plan(), watch) if run else verdict(found.plan(), watch, cost.broken)
        shown.append({**_show(found, judged, run, cost), "warnings": warnings[found.digest]})
    if as_json:
        emit_json({"plans": shown})
        return
    if not shown:
        say("no plan was offered yet")
    for plan in shown:
        for line in plan["words"]:
            say(line)
        say(f"decision: {plan['decision']}{_by(plan)}; run: {_run(plan)}; offered: {plan['offered']}")
        for line in plan["warnings"]:
            say(f"WARNING: {line}")
        if plan["holds_still"] and plan["run"] in (None, "active"):
            say("the node holds still: nothing is computed and nothing leaves until the policy can be read")
        if plan["decision"] == "pending" and plan["policy_passes"] and plan["offered"] in ("joining", "running"):
            say(f"to take part: fedsecure node approve {plan['digest']} --dir {quoted(folder)}")
        say()


def _warnings(settings: NodeSettings, store: Store, seen: list[SeenPlan], runs: dict[str, Run]) -> dict[str, list[str]]:
    """Of each plan whose run is not over here, what makes this node leave it at its first masked exchange."""
    from fedsecure.crypto.signatures import load_identity
    from fedsecure_node.masking.foreseen import begun_before, without_cohort
    from fedsecure_node.masking.pins import Pins

    over = {digest for digest, run in runs.items() if run.state != "active"}
    waiting = {found.digest: found.plan() for found in seen if found.digest not in over}
    if all(plan.secagg == "off" for plan in waiting.values()):
        return {found.digest: [] for found in seen}
    public_bytes = load_identity(settings.identity).public_bytes
    pins = Pins(store, node=settings.node, federation=settings.federation, public_bytes=public_bytes)
    given = store.marks.runs()
    before = [found.plan() for found in seen if found.digest in given]
    lines: dict[str, list[str]] = {found.digest: [] for found in seen}
    for digest, plan in waiting.items():
        repeated = "" if digest in given else begun_before(plan, before)
        lines[digest] = [line for line in (without_cohort(plan, pins), repeated) if line]
    return lines


def _by(plan: dict[str, Any]) -> str:
    by = f" by {plan['decided_by']}" if plan["decided_by"] else ""
    return by + (f" ({plan['reason']})" if plan["reason"] else "")


def _run(plan: dict[str, Any]) -> str:
    """The run's state for this node, with the reason for which it was left or aborted."""
    return (plan["run"] or "not joined") + (f" ({plan['run_reason']})" if plan["run_reason"] else "")


def _cost_words(seen: SeenPlan, judged: Verdict, run: Run | None, cost: CostOf) -> str:
    """What a private plan that has not begun would cost, or why nobody can say; nothing for others."""
    plan = seen.plan()
    if plan.privacy is None:
        return ""
    if run is not None:
        return "what its data set has paid: fedsecure node budget"
    if judged.policy is None or judged.policy.violations(plan):
        return ""
    try:
        found = cost(plan, judged.policy)
    except FedSecureError as error:
        return f"what it costs cannot be said: {error}"
    return found.words().removeprefix("privacy.epsilon: ") if found else ""


def _show(seen: SeenPlan, judged: Verdict, run: Run | None, cost: CostOf) -> dict[str, Any]:
    from fedsecure.masked_plan import masked_exchanges
    from fedsecure.methods.outline import outline_of
    from fedsecure_node.plans.describe import describe
    from fedsecure_node.plans.masked_words import masks_json

    plan, masks = seen.plan(), None
    try:
        method = outline_of(plan)
        spent = _cost_words(seen, judged, run, cost)
        words = describe(plan, judged.policy, method, policy_fault=judged.fault, cost=spent, spending=judged.violations)
        masks = masks_json(plan, masked_exchanges(plan, method))
    except FedSecureError as error:  # a plan that this version cannot build is shown all the same
        words = [f"plan {plan.name}, digest {seen.digest}", f"this node cannot build it: {error}"]
    return {
        "digest": seen.digest,
        "name": seen.name,
        "first_seen_ms": seen.first_seen_ms,
        "offered": seen.offered,
        "policy_passes": judged.passes,
        "violations": list(judged.violations),
        "policy_fault": judged.fault,
        "holds_still": judged.passing,
        "decision": seen.decision,
        "decided_by": seen.decided_by,
        "decided_ms": seen.decided_ms,
        "reason": seen.reason,
        "run": run.state if run else None,
        "run_reason": run.reason if run else "",
        "masks": masks,
        "words": words,
    }


def approve(
    digest: DigestArgument,
    rejoin: Annotated[
        bool, typer.Option("--rejoin", help="Join again a run that this node left, from its next round on.")
    ] = False,
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Approve a plan, after the policy was asked once more. Exit code 5: the privacy budget does not pay for the whole
    of it; 8: its run is over, or was left."""
    from fedsecure_node.assemble import cost_of
    from fedsecure_node.plans.approvals import approve as approve_plan
    from fedsecure_node.plans.approvals import who
    from fedsecure_node.settings import load_settings
    from fedsecure_node.store.store import Store

    settings = load_settings(folder)
    with Store(settings.store, create=False) as store:
        broken = cost_of(settings).broken
        seen = approve_plan(store, settings.policy, digest, by=who(), rejoin=rejoin, broken=broken)
    if as_json:
        emit_json({"digest": seen.digest, "name": seen.name, "decision": seen.decision, "decided_by": seen.decided_by})
        return
    say(f"approved plan {seen.name}, digest {seen.digest}, by {seen.decided_by}")


def refuse_plan(
    digest: DigestArgument,
    reason: Annotated[str, typer.Option(help="Why; the coordinator is told, so name no record.")],
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Refuse a plan, or take no further part in it. Exit code 8: its run is over."""
    from fedsecure_node.plans.approvals import refuse, who
    from fedsecure_node.settings import load_settings
    from fedsecure_node.store.store import Store

    settings = load_settings(folder)
    with Store(settings.store, create=False) as store:
        seen = refuse(store, digest, reason=reason, by=who())
    if as_json:
        emit_json({"digest": seen.digest, "name": seen.name, "decision": seen.decision, "reason": seen.reason})
        return
    say(f"refused plan {seen.name}, digest {seen.digest}")
