"""One masked sum by Flower's SecAgg+, for ``secagg.py``: runs in a virtual environment that has ``flwr``.

Flower's own client code (``secaggplus_mod``) and server code (``SecAggPlusWorkflow``) do everything; a grid in this
process carries messages between them. Of a node, only the four functions of the protocol are timed, not the handling of
messages round them; of the coordinator, the workflow's stages less the time that messages are away.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.compat.common import recorddict_compat as compat
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import SecAggPlusWorkflow, WorkflowState
from flwr.supercore.task_identity import TaskIdentity
from secagg_meter import Meter, serve

#: The module; the package binds a function to its name.
client = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")

SHARES, MASK = "node shares", "node mask"
COLLECT, UNMASK, OTHER = "coordinator add", "coordinator unmask", "coordinator other"
RECORDS = 1000
#: What a rounded mean may be away from the true one: one step of 2^22 over [-8, 8].
STEP = 16 / 2**22


class Grid:
    """Nodes in this process. ``dropped`` of them vanish when their vectors are due."""

    def __init__(self, meter: Meter, values: dict[int, Any], dropped: set[int]) -> None:
        self.meter, self.values, self.dropped = meter, values, dropped
        self.contexts = {node: Context(1, node, {}, RecordDict(), {}) for node in values}
        self.sent = dict.fromkeys(values, 0)

    def send_and_receive(self, messages: list[Message], timeout: float | None = None) -> list[Message]:
        """Every message to its node, and the replies of those who are there."""
        with self.meter.working("transport"):
            stage = messages[0].content.config_records[client.RECORD_KEY_CONFIGS][client.Key.STAGE]
            replies = []
            for message in messages:
                node = message.metadata.dst_node_id
                if node in self.dropped and stage in {client.Stage.COLLECT_MASKED_VECTORS, client.Stage.UNMASK}:
                    continue
                replies.append(self._ask(node, message))
            return replies

    def _ask(self, node: int, message: Message) -> Message:
        content = recorddict_from_proto(recorddict_to_proto(message.content))
        request = Message(content, dst_node_id=node, message_type=message.metadata.message_type)
        for party in (SHARES, MASK):
            self.meter.forget(party)
        reply = client.secaggplus_mod(request, self.contexts[node], self._trained)
        size = recorddict_to_proto(reply.content).ByteSize() if self.meter.memory else 0
        self.sent[node] += size
        self.meter.hand_over(MASK, COLLECT, size)
        return reply

    def _trained(self, message: Message, context: Context) -> Message:
        """What training would have given."""
        parameters = ndarrays_to_parameters([self.values[context.node_id]])
        result = FitRes(Status(Code.OK, ""), parameters, RECORDS, {})
        return Message(compat.fitres_to_recorddict(result, True), reply_to=message)


class Strategy:
    """Everybody trains; the mean is kept."""

    def __init__(self, nodes: list[int]) -> None:
        self.nodes, self.mean = nodes, np.zeros(0)

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
        return [(Proxy(node), FitIns(parameters, {})) for node in self.nodes]

    def aggregate_fit(self, server_round: int, results: list[Any], failures: list[Any]) -> tuple[None, dict[str, Any]]:
        self.mean = parameters_to_ndarrays(results[0][1].parameters)[0]
        return None, {}


class Proxy:
    def __init__(self, node_id: int) -> None:
        self.node_id = node_id


def meter_clients(meter: Meter) -> None:
    """Time the four functions of a node, wherever ``secaggplus_mod`` calls them."""
    parties = {"_setup": SHARES, "_share_keys": SHARES, "_collect_masked_vectors": MASK, "_unmask": SHARES}
    for name, party in parties.items():
        function = getattr(client, name)
        function = getattr(function, "plain", function)

        def timed(*arguments: Any, _function: Any = function, _party: str = party) -> Any:
            with meter.working(_party):
                return _function(*arguments)

        timed.plain = function  # type: ignore[attr-defined]
        setattr(client, name, timed)


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """One session of ``nodes`` nodes with vectors of ``elements`` float32, of which ``dropped`` never upload."""
    count, dropped = request["nodes"], request["dropped"]
    meter = Meter(request["memory"], later=True)  # what is reported begins with the vectors
    generator = np.random.default_rng(1)
    values = {n: generator.uniform(-1, 1, request["elements"]).astype(np.float32) for n in range(1, min(count, 4) + 1)}
    values |= {n: values[n % 4 + 1] for n in range(5, count + 1)}
    grid = Grid(meter, values, set(range(1, dropped + 1)))
    meter_clients(meter)
    mean = run(grid, meter, request["threshold"])
    meter.close()
    alive = [values[node] for node in values if node not in grid.dropped]
    error = float(np.abs(mean - np.mean(alive, axis=0, dtype=np.float64)).max())
    if error > STEP:
        raise SystemExit(f"Flower: the sum is wrong by {error}")
    return {
        "mask": meter.seconds(MASK) / len(alive),
        "shares": meter.seconds(SHARES) / count,
        "add": meter.seconds(COLLECT),
        "unmask": meter.seconds(UNMASK),
        "other": meter.seconds(OTHER),
        "bytes_up": max(grid.sent.values()),
        "node_peak": meter.peak(MASK),
        "coordinator_peak": meter.peak(COLLECT, UNMASK),
    }


def run(grid: Grid, meter: Meter, threshold: int) -> Any:
    """The mean by Flower's workflow: every node shares with every other, and exchanges masks with it."""
    strategy = Strategy(list(grid.values))
    context = LegacyContext(Context(1, 0, {}, RecordDict(), {}), strategy=strategy)  # type: ignore[arg-type]
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    context.state.array_records[MAIN_PARAMS_RECORD] = ArrayRecord()
    flow, state = SecAggPlusWorkflow(1.0, threshold, max_weight=RECORDS), WorkflowState()
    for stage, party in (
        (flow.setup_stage, OTHER),
        (flow.share_keys_stage, OTHER),
        (flow.collect_masked_vectors_stage, COLLECT),
        (flow.unmask_stage, UNMASK),
    ):
        if party == COLLECT:
            meter.trace()
        with meter.working(party):
            if not stage(grid, context, state):  # type: ignore[arg-type]
                raise SystemExit(f"Flower: the {party} stage failed")
        if party == COLLECT:  # the running total
            meter.hand_over(COLLECT, UNMASK, meter.parties[COLLECT].held)
    return strategy.mean


if __name__ == "__main__":
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 0
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    serve(measure)
