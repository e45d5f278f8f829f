"""``fedsecure predict``: each record is answered by the institution that matches it best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedsecure.commands.analyst import AnalystDirOption, note_missing_list
from fedsecure.commands.output import JsonOption, emit_json

if TYPE_CHECKING:
    from fedsecure.method import Method
    from fedsecure.plan import Plan

__all__ = ["predict"]


def _checked_wait(seconds: float) -> float:
    """``nan`` is in no range; an option's own range says something else of it."""
    if not 0.1 <= seconds <= 600:
        raise typer.BadParameter(f"{seconds:g} is not a number of seconds from 0.1 to 600")
    return seconds


def predict(
    queries: Annotated[
        list[Path],
        typer.Argument(
            metavar="QUERY", readable=False, help="Pictures, folders of pictures, .npz (array x), or .csv tables."
        ),
    ],
    run: Annotated[str, typer.Option(metavar="DIGEST", help="The run whose model is asked, or its first digits.")],
    folder: AnalystDirOption = Path(),
    route_at: Annotated[
        Literal["analyst", "coordinator"],
        typer.Option(help="Who finds the best-matched node; the coordinator would read the records."),
    ] = "analyst",
    fallback: Annotated[
        Literal["refuse", "next"],
        typer.Option(
            help="If that node cannot be reached: leave its records, or ask the next best and mark its answers."
        ),
    ] = "refuse",
    scores: Annotated[bool, typer.Option("--scores", help="Show the routing scores of all nodes, too.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            callback=_checked_wait,
            help="Wait so long for each answer, 0.1 to 600, within the coordinator's bound.",
        ),
    ] = 20.0,
    as_json: JsonOption = False,
) -> None:
    """Ask a trained model: the institution that matches a record best answers, by what never left it.

    The records are sealed to that institution's node: the coordinator carries them and cannot read them, unless
    --route-at coordinator lets it. Where a node refuses or is away, the records of other nodes are answered all the
    same; the command then ends with the first record's error.
    """
    from fedsecure.analyst.session import Question
    from fedsecure.analyst.session import predict as ask
    from fedsecure.analyst.settings import load_settings
    from fedsecure.commands.answers import as_object, note_unanswered, print_table, progress_bar

    settings = load_settings(folder)
    note_missing_list(settings, folder)
    question = Question(tuple(queries), run, route_at, fallback, scores, wait)
    with progress_bar() as watch:
        answered = ask(settings, question, _build_method, watch)
    if as_json:
        emit_json(as_object(answered, route_at, scores))
    else:
        print_table(answered, scores)
        note_unanswered(answered)
    if answered.interrupted:
        raise KeyboardInterrupt
    if answered.fault is not None:
        raise answered.fault


def _build_method(plan: Plan) -> Method:
    from fedsecure.methods import build_method

    return build_method(plan)
