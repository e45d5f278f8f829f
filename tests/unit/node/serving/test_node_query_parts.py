"""Small parts of the serving node: the policy's table, a store that threads share, models in memory, words."""

from __future__ import annotations

import io
import threading
from contextlib import suppress

import numpy as np
import pytest

from fedsecure.config import validate
from fedsecure.errors import ConfigError, NodeUnreachable, PolicyError
from fedsecure.methods.outline import outline_of
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution
from fedsecure_node.cli.first_steps import example
from fedsecure_node.plans.describe import describe
from fedsecure_node.progress import InTurn, PlainReporter
from fedsecure_node.serving import models as models_module
from fedsecure_node.serving.models import Models
from fedsecure_node.store.store import Store


def policy(**rules):
    return validate(Policy, {"format": 1, "prediction": rules}, "policy")


def test_left_out_nobody_may_ask():
    for strict in (validate(Policy, {"format": 1}, "policy"), policy()):
        with pytest.raises(PolicyError, match=r"^prediction.analysts: .* analyst a$"):
            strict.check_analyst("a", readable=False)


def test_the_rules_of_prediction():
    rules = policy(analysts=["a"], max_records_per_query=3, max_records_per_hour=5)
    rules.check_analyst("a", readable=False)
    with pytest.raises(PolicyError, match=r"^prediction.coordinator_routed: "):
        rules.check_analyst("a", readable=True)
    policy(analysts=["a"], coordinator_routed=True).check_analyst("a", readable=True)
    rules.check_query("a", 3, 2)
    with pytest.raises(PolicyError, match=r"^prediction.max_records_per_query: 4 "):
        rules.check_query("a", 4, 0)
    with pytest.raises(PolicyError, match=r"^prediction.max_records_per_hour: 3 records after 3 "):
        rules.check_query("a", 3, 3)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"analysts": ["Dr Weber"]}, "prediction.analysts.0: .*an analyst's name"),
        ({"max_records_per_query": 0}, "prediction.max_records_per_query"),
        ({"max_records_per_hour": 0}, "prediction.max_records_per_hour"),
        ({"coordinator_routed": "yes"}, "prediction.coordinator_routed"),
        ({"analyst": ["a"]}, "prediction.analyst"),
    ],
)
def test_mistakes_in_the_table_are_named(rules, says):
    with pytest.raises(ConfigError, match=says):
        policy(**rules)


def test_the_example_of_a_policy_holds_the_table_out_of_force_and_right(tmp_path):
    import tomllib

    text = example("policy.example.toml")
    assert validate(Policy, tomllib.loads(text), "example").prediction.analysts == ()
    at = text.index("# [prediction]")
    in_force = text[:at] + "\n".join(line.removeprefix("# ") for line in text[at:].splitlines())
    rules = validate(Policy, tomllib.loads(in_force), "example").prediction
    assert rules.analysts == ("dr-weber",)
    assert rules.model_copy(update={"analysts": ()}) == Policy(format=1).prediction


def test_a_write_of_one_thread_is_no_part_of_the_transaction_of_another(node):
    """What is rolled back in one thread must not take the other's write with it."""
    inside, written = threading.Event(), threading.Event()

    def other():
        inside.wait(60)
        node.store.database.write("INSERT INTO meta VALUES ('kept', 'x')")
        written.set()

    thread = threading.Thread(target=other)
    thread.start()
    with suppress(ZeroDivisionError), node.store.database.transaction():
        node.store.database.write("INSERT INTO meta VALUES ('lost', 'x')")
        inside.set()
        assert not written.wait(0.3)
        raise ZeroDivisionError
    thread.join(60)
    rows = {row["key"] for row in node.store.database.rows("SELECT key FROM meta")}
    assert "kept" in rows
    assert "lost" not in rows


def test_a_store_of_before_gains_the_table(node):
    node.store.database.write("DROP TABLE serving")
    with Store(node.settings.store) as again:
        assert again.serving.all() == []


def test_lines_of_threads_do_not_mix():
    out = io.StringIO()
    reporter = InTurn(PlainReporter(out))
    threads = [
        threading.Thread(target=lambda n=n: [reporter.say("e", f"line {n} " * 20) for _ in range(50)]) for n in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reporter.progress("p", 4, 4)
    reporter.close()
    lines = out.getvalue().splitlines()
    assert len(lines) == 101
    assert all(len(set(line.split()[2::2])) == 1 for line in lines[:-1])


def test_models_are_loaded_once_and_few_stay(serving, monkeypatch):
    built = []
    models = Models(serving.node.store, lambda plan: (built.append(1), serving.method(plan))[1])
    digest = serving.node.plan.digest()
    first = models.get(digest)
    assert models.get(digest) is first
    assert built == [1]
    assert "head" not in repr(first)
    monkeypatch.setattr(models_module, "IN_MEMORY", 1)
    other = Tensors({"head": np.array([2.0], np.float32)})
    payload = encode_contribution(serving.node.contribution())
    serving.node.store.runs.finish(
        serving.node.key(round_=1, attempt=1), broadcast="b" * 64, payload=payload, before="", local=other, now_ms=9
    )
    second = models.get(digest)
    assert float(second.local["head"][0]) == 2.0
    assert list(models._loaded.values()) == [second]


def test_a_run_that_was_never_heard_of_is_named_and_logged(serving):
    with pytest.raises(NodeUnreachable, match="has no model of run 000000000000"):
        serving.ask(run="0" * 64, relay={"plan_digest": "0" * 64})
    assert serving.records[-1].body["plan"] == {"digest": "0" * 64, "name": "", "method": ""}


def test_the_plan_in_words_says_who_may_ask_afterwards(serving):
    plan = serving.node.plan
    router = {"name": "mlp", "hidden": [4], "embedding": 4}
    method = {"name": "feddrm", "predict": {"steps": 1}, "route": {"steps": 1}, "router": router}
    cohort = {"min_nodes": 2, "nodes": ["a", "b"]}
    routed = Plan.model_validate({**plan.model_dump(), "method": method, "cohort": cohort}, strict=False)
    nobody = "\n".join(describe(routed, None, outline_of(routed)))
    assert "after the run: nobody may ask" in nobody
    named = "\n".join(describe(routed, serving.node.current().policy, outline_of(routed)))
    assert "after the run: dr-weber, dr-gone may ask" in named
    assert "sealed from the coordinator" in named
    assert "after the run:" not in "\n".join(describe(plan, None, serving.node.method))
