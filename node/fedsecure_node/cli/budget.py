"""``fedsecure node budget``: what the data sets of this node have spent of their privacy budgets, and putting it
back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsecure.commands.output import JsonOption, emit_json, note, say
from fedsecure.text import counted
from fedsecure_node.cli.options import DirOption

__all__ = ["app"]

app = typer.Typer(
    name="budget",
    help="What this node's data sets spent of their privacy budgets; restore: after a ledger was lost.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def budget(
    context: typer.Context,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="Draw epsilon over time (PNG, SVG or PDF).")
    ] = None,
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Show what each data set spent, for what, and what is left of its privacy budget."""
    if context.invoked_subcommand is not None:
        _nothing_before(context)
        return
    from fedsecure_node.cli.budget_view import read_budget
    from fedsecure_node.settings import load_settings

    found = read_budget(load_settings(folder))
    if plot is not None:
        from fedsecure_node.cli.budget_plot import plot_budget

        plot_budget(found.accounts, plot)
    if found.lacking:
        missing = counted(found.lacking, "entry", "entries")
        note(f"warning: the ledger lacks {missing} that the release log knows: it pays for nothing until you put the")
        note("newest copy back, or re-enter them: fedsecure node budget restore")
    elif found.changed:
        note(f"warning: {found.changed}; it pays for nothing until you put the")
        note("newest copy back, or what the log knows: fedsecure node budget restore")
    if as_json:
        emit_json(found.to_json())
        return
    if found.fault:
        note(f"no cap is known: {found.fault}")
    if not found.accounts:
        say("nothing was spent")
        return
    say(f"ledger {found.ledger} ({found.identity[:12]}), {counted(found.counter, 'entry', 'entries')}")
    for account in found.accounts:
        for line in account.lines():
            say(line)
    if plot is not None:
        say(f"drawn: {plot}")


def _nothing_before(context: typer.Context) -> None:
    """Refuse an option between ``budget`` and its verb, which would not get it: that would work in another folder."""
    sources = {each.opts[0]: context.get_parameter_source(each.name or "") for each in context.command.params}
    options = [option for option, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if options:
        context.fail(f"{options[0]} stands before '{context.invoked_subcommand}', which takes its options behind it")


@app.command()
def restore(folder: DirOption = Path(), as_json: JsonOption = False) -> None:
    """Re-enter what the release log knows and the ledger lacks. After an older copy was put back, or it was lost."""
    from fedsecure_node.cli.budget_view import restore_budget
    from fedsecure_node.settings import load_settings

    put_back = restore_budget(load_settings(folder))
    if as_json:
        emit_json({"restored": [entry.to_json() for entry in put_back]})
        return
    if not put_back:
        say("the ledger holds every entry that the release log knows, and links data sets as it tells")
        return
    say(f"re-entered {counted(len(put_back), 'entry', 'entries')}; run this for each node that shares the ledger")
