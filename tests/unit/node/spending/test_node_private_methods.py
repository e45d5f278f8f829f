"""Every method under [privacy], from the records to the gate: what takes part, what is paid, and that the gate, which
knows noisy counts alone, lets it through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedsecure.method import ClientContext
from fedsecure.methods import build_method
from fedsecure.privacy.costs import count_spend, plan_spends, spends
from fedsecure.privacy.spend import merged
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution
from fedsecure_node.egress import Gate
from fedsecure_node.keys import ExchangeKey

SGD = {"kind": "dp-sgd", "sigma": 20.0, "batch": 1000, "steps": 2}
RELEASE = {"kind": "release", "sigma": 20.0, "networks": 2}
NODES = {"min_nodes": 2, "nodes": ["hospital-a", "hospital-b"]}
ROUTER = {"name": "mlp", "hidden": [4]}
FEW = {"ipc": 1, "steps": 2, "min_count": 10}
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fedavg": ({"name": "fedavg", "local_steps": 1}, SGD),
    "fedspm": ({"name": "fedspm", "router": ROUTER}, SGD),
    "fedspm-explicit": (
        {"name": "fedspm", "router": ROUTER, "parametrisation": "explicit", "share_counts": True},
        SGD,
    ),
    "feddrm": ({"name": "feddrm", "router": ROUTER}, SGD),
    "fedaf": ({"name": "fedaf", **FEW}, RELEASE),
    "fedaf-weighted": ({"name": "fedaf", **FEW, "averaging": "holders_weighted", "sync": "stale"}, RELEASE),
    "feddm": ({"name": "feddm", **FEW}, RELEASE),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_round_from_the_records_to_the_gate(site, plan_of, variant):
    method_settings, privacy = VARIANTS[variant]
    plan = site.join(plan_of(privacy=privacy, method=method_settings, rounds=1, cohort=NODES, name=variant))
    policy = site.policy(epsilon=100.0, plans_methods=["fedavg", "fedaf", "feddm", "fedspm", "feddrm"])
    method, gate = build_method(plan), Gate(site.store, site.log, node_id="hospital-a", hold=False)
    server, local = method.init_server(1), Tensors()
    part = site.desk.part(plan, plan.digest(), policy)
    assert set(np.unique(part.data.y)) == set(np.flatnonzero(part.counts))
    expected = [count_spend(plan.privacy)]
    for step, exchange in enumerate(method.exchanges):
        key = ExchangeKey(plan.digest(), 0, step, 0, exchange)
        ctx = ClientContext("hospital-a", 0, 7, privacy=site.desk.pay(plan, key, part, policy))
        expected += spends(plan, exchange, 0, part.records, tuple(part.counts))
        local, contribution = method.client_update(exchange, method.broadcast(exchange, server), local, part.data, ctx)
        payload = encode_contribution(contribution)
        gate.check(plan, method, key, payload, part.counts, policy, records=part.records)
        said = method.schema(exchange).of_role("summed", "records")
        if said is not None:
            assert int(contribution.summed[said.name].sum()) == 112, "of all records, also those that were left out"
    history = site.purse.ledger().history(part.data_set)
    assert history == merged(expected) == plan_spends(plan, part.records, tuple(part.counts))
