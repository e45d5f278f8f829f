"""``fedsecure demo``: a whole federation on one machine, over the real command line, daemons, certificates and wire."""

from __future__ import annotations

import shutil
import time
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsecure.commands.output import JsonOption, emit_json, say
from fedsecure.errors import ConfigError
from fedsecure.files import quoted

if TYPE_CHECKING:
    from fedsecure.commands.demo.routed import Routed
    from fedsecure.data.dealt import Dealt
    from fedsecure.plan import Plan

__all__ = ["demo"]

#: A folder that holds this file was made by a demonstration, and may be replaced by the next one.
MARK = ".fedsecure-demo"


class DemoMethod(StrEnum):
    """Methods that the demonstration can show; FedAvg always runs beside them."""

    FEDAF = "fedaf"
    FEDDM = "feddm"
    FEDAVG = "fedavg"
    FEDSPM = "fedspm"


def demo(
    method: Annotated[DemoMethod, typer.Option(help="The method to show; FedAvg runs beside it.")] = DemoMethod.FEDAF,
    nodes: Annotated[
        int,
        typer.Option(help="How many institutions; 0 for as many as suit the method: 3 or 4.", min=0, max=10),
    ] = 0,
    dp: Annotated[
        float | None,
        typer.Option(
            "--dp", metavar="EPS", help="Run the method with and without differential privacy, within this budget."
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="How many rounds; 0 for as many as suit the method: 3 or 12.", min=0, max=20)
    ] = 0,
    out: Annotated[
        Path, typer.Option(readable=False, help="Folder of the demonstration; an earlier one is replaced.")
    ] = Path("fedsecure-demo"),
    json_output: JsonOption = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep keys and stores, so that the daemons can be started again.")
    ] = False,
) -> None:
    """Train institutions together over mutual TLS, and show exactly what left each of them.

    Makes a CA, a coordinator and nodes in a folder, enrols them step by step, deals scikit-learn's handwritten digits
    out by Dirichlet(0.1), runs the real daemons on 127.0.0.1, and compares the method with FedAvg over the same
    rounds. With FedSPM the institutions also look and label differently, and an analyst's queries are routed to the
    best-matched one, which answers. With --dp the same plan runs with and without differential privacy: what the
    records paid is shown from each node's ledger. Nothing is downloaded.
    """
    from fedsecure.commands.demo.private import add_budgets
    from fedsecure.commands.demo.report import add_routed, collect, print_report, save

    started = time.monotonic()
    tell = partial(typer.echo, err=True) if json_output else say
    _check_epsilon(dp)
    root = _fresh_folder(out)
    plans, dealt = _prepare(method, _how_many(method, nodes), root, rounds, dp)
    data = dealt.train
    federation, routed = _run(root, plans, dealt, tell, dp)
    result = collect(federation, plans, data)
    if routed:
        add_routed(result, routed)
    if dp is not None:
        add_budgets(result, federation, plans[0], dp)
    if not keep:
        _drop_secrets(federation.root, federation.nodes)
    result["seconds"] = round(time.monotonic() - started, 1)
    save(result, federation.root / "result.json")
    if json_output:
        emit_json(result)
        return
    print_report(result)
    if keep:
        say("Kept. To start the daemons again, each in a terminal of its own:")
        for role, folder in [("coordinator", federation.coordinator), *(("node", federation.node(n)) for n in data)]:
            say(f"  fedsecure {role} run --dir {quoted(folder)}")


def _fresh_folder(out: Path) -> Path:
    """An empty folder. Raises ``ConfigError`` when ``out`` holds anything but an earlier demonstration."""
    from fedsecure.files import faults

    root = out.resolve()
    with faults(out, "written", ConfigError):
        if root.exists() and not root.is_dir():
            raise ConfigError(f"{out}: is not a folder", hint="choose another --out")
        if root.is_dir() and any(root.iterdir()):
            if not (root / MARK).is_file():
                raise ConfigError(
                    f"{out}: is not empty and was not made by a demonstration", hint="choose another --out"
                )
            shutil.rmtree(root)
        root.mkdir(parents=True, exist_ok=True)
        (root / MARK).write_text("made by `fedsecure demo`; replaced by the next one\n", encoding="utf-8")
    return root


def _how_many(method: DemoMethod, nodes: int) -> int:
    """The number of institutions. Raises ``ConfigError`` for one that the method's demonstration cannot have."""
    least, most, usual = (2, 8, 4) if method is DemoMethod.FEDSPM else (2, 10, 3)
    if nodes and not least <= nodes <= most:
        raise ConfigError(f"--nodes {nodes}: allowed for {method}: {least} to {most}, or 0 for {usual}")
    return nodes or usual


def _check_epsilon(dp: float | None) -> None:
    if dp is not None and not 0.1 <= dp <= 1000:
        raise ConfigError(f"--dp {dp:g}: out of range", hint="allowed: 0.1 to 1000")


def _prepare(method: DemoMethod, nodes: int, root: Path, rounds: int, dp: float | None) -> tuple[list[Plan], Dealt]:
    """The plans, the one to be shown first, and the records."""
    from fedsecure.commands.demo.plans import write_plans, write_private
    from fedsecure.data.partition import deal

    plans, simulation = write_plans(root, str(method), nodes, rounds=rounds, alone=dp is not None)
    dealt = deal(simulation, plans[0].task, plans[0].seed)
    if dp is not None:
        plans.insert(0, write_private(root, plans[0], dealt.train, dp))
    return plans, dealt


def _run(root: Path, plans: list[Plan], dealt: Dealt, tell: Any, dp: float | None) -> tuple[Any, dict[str, Routed]]:
    """Everything that happens over the wire; the daemons are gone when this returns or raises."""
    from fedsecure.commands.demo.federation import make_federation
    from fedsecure.commands.demo.plans import key_of
    from fedsecure.commands.demo.processes import Daemons
    from fedsecure.commands.demo.routed import ask_everything
    from fedsecure.commands.demo.runs import approve_everywhere, follow, start_daemons

    data = dealt.train
    tell(f"1. A federation of {len(data)} institutions in {root}")
    federation = make_federation(root, data, dealt.test, lambda command: tell(f"   $ {command}"), epsilon=dp)
    with Daemons() as daemons:
        tell("2. Daemons: the coordinator, and a node in each institution")
        start_daemons(federation, daemons, plans, tell)
        tell("3. Each institution looks at the plans and approves their digests")
        approve_everywhere(federation, plans, daemons, tell)
        tell("4. Rounds")
        follow(federation, plans, daemons, tell)
        asked = [plan for plan in plans if plan.method.name == "fedspm"]
        if asked:
            tell("5. An analyst asks: each query goes, sealed, to the institution that matches it best")
        routed = {key_of(plan): ask_everything(federation, plan, dealt.tests, daemons, tell) for plan in asked}
        return federation, routed


def _drop_secrets(root: Path, nodes: tuple[str, ...]) -> None:
    """Without ``--keep``: private keys go, and with them the possibility to start these daemons again. Logs, previews,
    public keys and the model stay."""
    for folder in (root / "ca", root / "coordinator", root / "analyst", *(root / node for node in nodes)):
        for key in folder.glob("*.key"):
            key.unlink()
