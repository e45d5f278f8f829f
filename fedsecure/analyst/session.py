"""One session with the coordinator: the model chosen and checked, the records read, every record answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedsecure.analyst.asking import Answer, Fallback, ask_by_scores, check_scores, records_a_query
from fedsecure.analyst.client import AnalystClient, Greeting, connected, tls_files
from fedsecure.analyst.models import BuildMethod, Model, choose, load_router, read_model
from fedsecure.analyst.plain import ask_plain
from fedsecure.analyst.sealed import Asking, SealedLine
from fedsecure.analyst.settings import AnalystSettings
from fedsecure.crypto.keyfiles import read_public, read_secret
from fedsecure.crypto.statements import Signer
from fedsecure.data.unlabelled import Unlabelled, load_unlabelled, require_there
from fedsecure.plan import Plan

__all__ = ["Answered", "Question", "RouteAt", "list_models", "predict"]

#: Where the best-matched node is found: here (the query stays sealed), or by the coordinator, which then reads it.
RouteAt = Literal["analyst", "coordinator"]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked and how. ``run``: a digest or its first digits; ``wait_s``: seconds to wait for each answer of a
    node, within the coordinator's bound."""

    paths: tuple[Path, ...]
    run: str
    route_at: RouteAt = "analyst"
    fallback: Fallback = "refuse"
    scores: bool = False
    wait_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer for each record, in order. ``run``: the whole digest; ``names``: of the records."""

    run: str
    plan: Plan
    names: tuple[str, ...]
    answers: tuple[Answer, ...]


def list_models(settings: AnalystSettings) -> list[tuple[Model, dict[str, bool]]]:
    """The models that answer queries, newest first, each with its nodes: whether one can be reached at this moment."""
    with connected(settings) as (client, _):
        models = [read_model(served) for served in client.models()]
    return [(m, dict.fromkeys(m.nodes, False) | {n.node_id: n.reachable for n in m.served.nodes}) for m in models]


def predict(settings: AnalystSettings, question: Question, build_method: BuildMethod) -> Answered:
    """Have every record answered.

    Raises ``DataError`` for records that do not fit the plan, ``ConfigError`` for a run that answers no queries,
    ``NodeUnreachable`` naming the node, and what the nodes refuse with.
    """
    require_there(question.paths)
    with connected(settings) as (client, greeting):
        model = read_model(choose(client.models(), question.run))
        records = load_unlabelled(question.paths, model.plan.task, settings.reading())
        asking = _asking(settings, client, greeting, question.wait_s)
        if question.route_at == "coordinator":
            answers = _by_coordinator(asking, model, records, question)
        else:
            answers = _by_ourselves(asking, model, records, question, greeting, build_method)
    return Answered(model.run, model.plan, records.names, tuple(answers))


def _asking(settings: AnalystSettings, client: AnalystClient, greeting: Greeting, wait_s: float) -> Asking:
    files = tls_files(settings)
    return Asking(
        client,
        Signer(read_secret(files.key, "TLS key"), read_public(files.cert, "certificate")),
        settings.analyst,
        settings.federation,
        files,
        greeting.clock_ms,
        min(max(round(wait_s * 1000), 1), greeting.max_wait_ms),
    )


def _by_ourselves(
    asking: Asking,
    model: Model,
    records: Unlabelled,
    question: Question,
    greeting: Greeting,
    build_method: BuildMethod,
) -> Sequence[Answer]:
    router = load_router(asking.client, model, build_method)
    x, nodes = records.x, router.method.nodes
    scores = check_scores(router.method.route(router.parameters, x), len(x), nodes)
    line = SealedLine(asking, model)
    part = records_a_query(x[0].nbytes, greeting.max_query_bytes)
    return ask_by_scores(
        scores, nodes, lambda node, rows: line.ask(node, x[rows]), part=part, fallback=question.fallback
    )


def _by_coordinator(asking: Asking, model: Model, records: Unlabelled, question: Question) -> Sequence[Answer]:
    x = records.x
    return [
        ask_plain(asking, model, x[row : row + 1], fallback=question.fallback, scores=question.scores)
        for row in range(len(x))
    ]
