"""``fedsecure predict``: each record is answered by the institution that matches it best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedsecure.commands.analyst import AnalystDirOption
from fedsecure.commands.output import JsonOption, emit_json

if TYPE_CHECKING:
    from fedsecure.analyst.asking import Answer
    from fedsecure.analyst.session import Answered
    from fedsecure.method import Method
    from fedsecure.plan import Plan

__all__ = ["predict"]


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
        typer.Option(help="If that node cannot be reached: stop, or ask the next best and mark its answer."),
    ] = "refuse",
    scores: Annotated[bool, typer.Option("--scores", help="Show the routing scores of all nodes, too.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.1, max=600, help="Wait so long for each answer, within the coordinator's bound."
        ),
    ] = 20.0,
    as_json: JsonOption = False,
) -> None:
    """Ask a trained model: the institution that matches a record best answers, by what never left it.

    The records are sealed to that institution's node: the coordinator carries them and cannot read them, unless
    --route-at coordinator lets it.
    """
    from fedsecure.analyst.session import Question
    from fedsecure.analyst.session import predict as ask
    from fedsecure.analyst.settings import load_settings

    question = Question(tuple(queries), run, route_at, fallback, scores, wait)
    answered = ask(load_settings(folder), question, _build_method)
    if as_json:
        emit_json(_object(answered, route_at, scores))
    else:
        _print_table(answered, scores)


def _build_method(plan: Plan) -> Method:
    from fedsecure.methods import build_method

    return build_method(plan)


def _object(answered: Answered, route_at: str, scores: bool) -> dict[str, Any]:
    """What ``--json`` prints."""
    classes = answered.plan.task.classes
    return {
        "run": answered.run,
        "route_at": route_at,
        "answers": [
            {
                "record": name,
                "node": answer.node,
                "class": classes[int(answer.probabilities.argmax())],
                "probabilities": dict(zip(classes, answer.probabilities.tolist(), strict=True)),
                "components": answer.components.tolist(),
                "fallback": answer.fallback,
                "best": answer.best,
                **({"scores": dict(answer.scores)} if scores and answer.scores is not None else {}),
            }
            for name, answer in zip(answered.names, answered.answers, strict=True)
        ],
    }


def _print_table(answered: Answered, scores: bool) -> None:
    """The same for people."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fedsecure.files import shown

    table = Table(title=f"Run {answered.run[:12]}, {escape(answered.plan.name)}")
    for column in ("record", "node", "answer", "probability", "components", *(["scores"] if scores else [])):
        table.add_column(column, justify="right" if column == "probability" else "left", overflow="fold")
    for name, answer in zip(answered.names, answered.answers, strict=True):
        top = int(answer.probabilities.argmax())
        table.add_row(
            escape(name),
            f"{answer.node} (fallback: {answer.best} cannot be reached)" if answer.fallback else answer.node,
            escape(shown(answered.plan.task.classes[top])),
            f"{float(answer.probabilities[top]):.3f}",
            " ".join(f"{p:.2f}" for p in answer.components.tolist()),
            *([_score_text(answer)] if scores else []),
        )
    Console(highlight=False).print(table)


def _score_text(answer: Answer) -> str:
    ranked = sorted((answer.scores or {}).items(), key=lambda item: -item[1])
    return ", ".join(f"{node} {score:.2f}" for node, score in ranked)
