"""What ``fedsecure predict`` shows: the answers, and which records have none, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fedsecure.commands.output import note
from fedsecure.errors import DataError
from fedsecure.text import counted

if TYPE_CHECKING:
    from fedsecure.analyst.batch import Answer, Watch
    from fedsecure.analyst.session import Answered

__all__ = ["INTERRUPTED", "as_object", "note_unanswered", "print_table", "progress_bar"]

#: Batches of more records show how far they are, on a terminal.
QUIET_RECORDS: Final = 64
#: So many records without an answer are named in one line.
MOST_NAMES: Final = 5
#: What is said of a record that was not asked about any more when a person interrupted.
INTERRUPTED: Final = "interrupted"


def as_object(answered: Answered, route_at: str, scores: bool) -> dict[str, Any]:
    """What ``--json`` prints: ``answers`` and, for the rest of the records, ``unanswered``."""
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
            for name, answer in _named(answered, answered.by_record)
        ],
        "unanswered": [
            {"record": name, "error": error, "message": message, "hint": hint}
            for name, (error, message, hint) in _unanswered(answered)
        ],
    }


def _named(answered: Answered, by_record: Mapping[int, Answer]) -> Iterator[tuple[str, Answer]]:
    return ((name, by_record[row]) for row, name in enumerate(answered.names) if row in by_record)


def _unanswered(answered: Answered) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """(record, (class of the error, message, hint)) of each record without an answer, in order."""
    for row, name in enumerate(answered.names):
        if row in answered.faults:
            error = answered.faults[row]
            yield name, (type(error).__name__, str(error), error.hint)
        elif row not in answered.by_record:
            yield name, ("KeyboardInterrupt", INTERRUPTED, "")


def print_table(answered: Answered, scores: bool) -> None:
    """The answers for people; nothing when there are none."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from fedsecure.files import shown

    if not answered.by_record:
        return
    table = Table(title=f"Run {answered.run[:12]}, {escape(answered.plan.name)}")
    for column in ("record", "node", "answer", "probability", "components", *(["scores"] if scores else [])):
        table.add_column(column, justify="right" if column == "probability" else "left", overflow="fold")
    for name, answer in _named(answered, answered.by_record):
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


def note_unanswered(answered: Answered) -> None:
    """One line on stderr for each reason why records have no answer; none where the error's own line says it all: it
    holds for every record, whatever is in it."""
    reasons: dict[str, list[str]] = {}
    for name, (_, message, _) in _unanswered(answered):
        reasons.setdefault(message, []).append(name)
    if not answered.by_record and len(reasons) == 1 and not isinstance(answered.fault, DataError):
        return
    for message, names in reasons.items():
        which = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" * (len(names) > MOST_NAMES))
        note(f"not answered, {len(names)} of {counted(len(answered.names), 'record')} ({which}): {message}")


@contextmanager
def progress_bar() -> Iterator[Watch]:
    """A bar on stderr that a long batch moves, where that is a terminal; it goes when the block ends."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("asking", total=None, visible=False)

        def watch(settled: int, records: int) -> None:
            progress.update(task, completed=settled, total=records, visible=records > QUIET_RECORDS)

        yield watch
