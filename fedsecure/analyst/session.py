"""One session with the coordinator: the model chosen and checked, the records read, every record answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from fedsecure.analyst.asking import Fallback, ask_by_scores, check_scores, records_a_query
from fedsecure.analyst.batch import Answer, Batch, Watch
from fedsecure.analyst.client import AnalystClient, Greeting, connected, tls_files
from fedsecure.analyst.models import BuildMethod, Model, Router, choose, load_router, read_model
from fedsecure.analyst.plain import ask_by_coordinator
from fedsecure.analyst.sealed import Asking, SealedLine
from fedsecure.analyst.settings import AnalystSettings
from fedsecure.crypto.keyfiles import read_public, read_secret
from fedsecure.crypto.statements import Signer
from fedsecure.data.unlabelled import Unlabelled, load_unlabelled, require_there
from fedsecure.errors import DataError, FedSecureError
from fedsecure.plan import Plan
from fedsecure.tensors import Array

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
    """What came of the records, whose ``names`` are in order; ``run``: the whole digest.

    ``by_record``: the answers, and ``faults``: the errors, by the record's place in ``names``; a record that has
    neither was not asked about any more when a person ``interrupted``. ``fault``: the error that the whole ends with,
    ``None`` when every record that was asked about is answered.
    """

    run: str
    plan: Plan
    names: tuple[str, ...]
    by_record: Mapping[int, Answer]
    faults: Mapping[int, FedSecureError]
    fault: FedSecureError | None = None
    interrupted: bool = False

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers alone, in the order of the records."""
        return tuple(self.by_record[row] for row in sorted(self.by_record))


def list_models(settings: AnalystSettings) -> list[tuple[Model, dict[str, bool]]]:
    """The models that answer queries, newest first, each with its nodes: whether one can be reached at this moment."""
    with connected(settings) as (client, _):
        models = [read_model(served) for served in client.models()]
    return [(m, dict.fromkeys(m.nodes, False) | {n.node_id: n.reachable for n in m.served.nodes}) for m in models]


def predict(
    settings: AnalystSettings,
    question: Question,
    build_method: BuildMethod,
    watch: Watch = lambda settled, records: None,
) -> Answered:
    """Have every record answered, or its error named: refusals of nodes, ``NodeUnreachable``, a ``WireError`` once the
    coordinator is gone. ``watch`` is told after every query how many records are settled, of how many.

    Raises, before anything is asked, ``DataError`` for records that do not fit the plan, ``ConfigError`` for a run that
    answers no queries, and what is wrong with the connection.
    """
    require_there(question.paths)
    with connected(settings) as (client, greeting):
        model = read_model(choose(client.models(), question.run))
        records = load_unlabelled(question.paths, model.plan.task, settings.reading())
        asking = _asking(settings, client, greeting, question.wait_s)
        batch = Batch(len(records.names), watch)
        ask: Callable[[], None]
        if question.route_at == "coordinator":
            ask = partial(
                ask_by_coordinator, asking, model, records.x, batch, fallback=question.fallback, scores=question.scores
            )
        else:
            ask = _by_ourselves(asking, model, records, question, greeting, build_method, batch)
        try:
            ask()
        except KeyboardInterrupt:
            batch.interrupted = True
    return Answered(model.run, model.plan, records.names, batch.answers, batch.faults, batch.fault, batch.interrupted)


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
    batch: Batch,
) -> Callable[[], None]:
    """What asks the nodes, once routing parameters are here and every record is routed."""
    router = load_router(asking.client, model, build_method)
    x, nodes = records.x, router.method.nodes
    scores = _scores(router, records)
    line = SealedLine(asking, model)
    part = records_a_query(x[0].nbytes, greeting.max_query_bytes)
    return partial(
        ask_by_scores,
        scores,
        nodes,
        lambda node, rows: line.ask(node, x[rows]),
        batch,
        part=part,
        fallback=question.fallback,
    )


def _scores(router: Router, records: Unlabelled) -> Array:
    """Routing scores, float64 (n, m). Raises ``DataError`` naming the record that has none."""

    def route(x: Array) -> Array:
        return router.method.route(router.parameters, x)

    try:
        return check_scores(route(records.x), records.names, router.method.nodes)
    except DataError:
        for row, name in enumerate(records.names):  # one by one: which of them is it?
            try:
                check_scores(route(records.x[row : row + 1]), (name,), router.method.nodes)
            except DataError as error:
                fault = str(error).removeprefix("tensor x: record 0: ").removeprefix(f"{name}: ")
                raise DataError(f"{name}: {fault}", hint=error.hint) from None
        raise
