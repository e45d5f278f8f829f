"""The middle of a demonstration: daemons up, plans approved by hand, rounds followed to their end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fedsecure.commands.demo.processes import Daemons, run_command
from fedsecure.errors import RunAborted
from fedsecure.files import quoted

if TYPE_CHECKING:
    from fedsecure.commands.demo.federation import DemoFederation
    from fedsecure.plan import Plan

__all__ = ["approve_everywhere", "follow", "start_daemons"]

#: The plans must have reached every node within this time, and all runs must have ended within the other (seconds). A
#: busy machine takes a minute or two to say what a private plan would cost.
OFFER_SECONDS = 300.0
RUN_SECONDS = 1800.0
#: Between two looks (seconds).
PAUSE = 1.0

Tell = Callable[[str], None]


def _ask(*arguments: str) -> Any:
    return json.loads(run_command([*arguments, "--json"]))


def start_daemons(federation: DemoFederation, daemons: Daemons, plans: Sequence[Plan], tell: Tell) -> None:
    """Submit the plans, then start the coordinator and every node, each a process with a log of its own."""
    for plan in plans:
        file = federation.root / "plans" / f"{plan.name}.toml"
        tell(f"   $ fedsecure coordinator submit {quoted(file)} --dir {quoted(federation.coordinator)}")
        run_command(["coordinator", "submit", str(file), "--dir", str(federation.coordinator)])
    logs = federation.root / "logs"
    logs.mkdir()
    tell(f"   $ fedsecure coordinator run --dir {quoted(federation.coordinator)}")
    daemons.start("coordinator", ["coordinator", "run", "--dir", str(federation.coordinator)], logs / "coordinator.log")
    for node in federation.nodes:
        tell(f"   $ fedsecure node run --dir {quoted(federation.node(node))}")
        daemons.start(node, ["node", "run", "--dir", str(federation.node(node))], logs / f"{node}.log")


def approve_everywhere(federation: DemoFederation, plans: Sequence[Plan], daemons: Daemons, tell: Tell) -> None:
    """As soon as a node was offered every plan: check the digests against the plan files, then approve each."""
    for node in federation.nodes:
        folder = str(federation.node(node))
        digests = {plan.digest() for plan in plans}
        deadline = time.monotonic() + OFFER_SECONDS
        while not digests <= _offered(folder):
            daemons.check()
            if time.monotonic() > deadline:
                raise RunAborted(f"{node} was not offered the plans within {OFFER_SECONDS:.0f} s")
            time.sleep(PAUSE)
        for plan in plans:
            tell(f"   $ fedsecure node approve {plan.digest()[:16]}… --dir {quoted(folder)}")
            run_command(["node", "approve", plan.digest(), "--dir", folder])


def _offered(folder: str) -> set[str]:
    """Digests of the plans that a node was offered so far; none while its daemon is still making its store."""
    try:
        return {str(plan["digest"]) for plan in _ask("node", "plans", "--dir", folder)["plans"]}
    except RunAborted:
        return set()


def follow(federation: DemoFederation, plans: Sequence[Plan], daemons: Daemons, tell: Tell) -> None:
    """Tell each round as it ends, until every run has; raises ``RunAborted`` when one aborts."""
    from fedsecure.plan.methods import RoutedSettings

    told: set[tuple[str, int]] = set()
    unmeasured = {plan.name for plan in plans if isinstance(plan.method, RoutedSettings)}
    deadline = time.monotonic() + RUN_SECONDS
    while True:
        runs = run_views(federation)
        for run in runs:
            for entry in run["history"]:
                accuracy = entry["metrics"].get("accuracy")
                known = accuracy is not None or run["name"] in unmeasured
                if known and (run["name"], entry["round"]) not in told:
                    told.add((run["name"], entry["round"]))
                    figure = "done" if accuracy is None else f"accuracy {accuracy:.3f}"
                    tell(f"   {run['name']}: round {entry['round']}, {figure}")
            if run["state"] == "ABORTED":
                raise RunAborted(f"run {run['name']} aborted: {run['reason']}", hint=f"see {federation.root / 'logs'}")
        if len(runs) == len(plans) and all(run["state"] == "COMPLETED" for run in runs):
            return
        daemons.check()
        if time.monotonic() > deadline:
            raise RunAborted(f"the runs did not end within {RUN_SECONDS:.0f} s", hint=f"see {federation.root / 'logs'}")
        time.sleep(PAUSE)


def run_views(federation: DemoFederation) -> list[dict[str, Any]]:
    """Every run as ``fedsecure coordinator status --json`` shows it."""
    return list(_ask("coordinator", "status", "--dir", str(federation.coordinator))["runs"])
