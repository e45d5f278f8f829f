"""The audit at the gate: on the very bytes, before they leave; what it finds is in the log, and its report in the store
alone."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsecure.audit_rules import AuditRules
from fedsecure.crypto.signatures import load_identity
from fedsecure.data.dataset import Dataset
from fedsecure.errors import LocalProtocolError, ReleaseLogError
from fedsecure.plan.task import ImageTask
from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import encode_contribution
from fedsecure_node.auditing.auditor import Auditor
from fedsecure_node.auditing.images import condensed
from fedsecure_node.cli.verification import verify_node
from fedsecure_node.log.audited import Audited, audit_line, audit_words
from fedsecure_node.log.decisions import decide
from fedsecure_node.log.releases import fold
from fedsecure_node.plans.audit_words import audit_lines

DEFAULT = AuditRules()


class Listener:
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def say(self, event: str, text: str, **fields: Any) -> None:
        self.said.append((event, text))

    def progress(self, label: str, done: int, of: int) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def auditor(node: Any) -> Auditor:
    return Auditor(node.store, Listener())


def nobody(data: Dataset) -> Dataset:
    return data.subset(np.arange(0))


def planted(node: Any, count: int) -> Contribution:
    """The toy's condensed data, in whose first images are members as networks see them."""
    made = node.contribution()
    images = made.released["images"].copy()
    task = node.plan.task
    assert isinstance(task, ImageTask)
    images[:count] = (node.data.x[:count] - np.float32(task.mean[0])) / np.float32(task.std[0])
    return Contribution(released=made.released.with_({"images": images}))


def audited(auditor: Auditor, node: Any, contribution: Contribution, rules: AuditRules = DEFAULT) -> Audited:
    key = node.key()
    return auditor.audit(node.plan, node.method, key, contribution, node.data, lambda: nobody(node.data), rules)


def logged(node: Any, contribution: Contribution, found: Audited | None, **how: Any) -> Any:
    gate, key, payload = node.gate_with(hold=False), node.key(), encode_contribution(contribution)
    checked = gate.check(node.plan, node.method, key, payload, node.data.counts(), node.current().policy)
    done = node.store.runs.finished(key) or node.store.runs.finish(
        key, broadcast="b" * 64, payload=payload, before="", local=Tensors(), now_ms=3
    )
    about = (node.plan, node.method, done, payload, checked, node.current(), node.destination)
    return gate, payload, gate.log(*about, audited=found, **how)


def test_standardisation_is_undone_and_nothing_is_cut(node: Any, plan_of: Callable[..., Any]) -> None:
    task = {"kind": "image", "classes": ["a", "b", "c"], "shape": [1, 8, 8], "mean": [0.3], "std": [0.38]}
    plan = plan_of(task=task)
    images = np.linspace(-9, 9, 2 * 64, dtype=np.float32).reshape(2, 1, 8, 8)
    made = Contribution(released=Tensors({"images": images, "labels": np.array([0, 2])}))
    found = condensed(plan, node.method.schema("condensation"), made)
    assert found is not None
    assert np.allclose(found.x, images * 0.38 + 0.3, atol=1e-6)
    assert found.x.min() < 0 < 1 < found.x.max()


def test_members_among_the_images_are_withheld_and_the_log_says_why(node: Any, auditor: Auditor) -> None:
    found = audited(auditor, node, planted(node, 3))
    assert (found.result, found.then, found.profile) == ("LEAK", "withhold", "copies")
    gate, payload, release = logged(node, planted(node, 3), found)
    assert release.state == "withheld"
    told = fold(node.log.records())[release.number]
    assert told.body["audit"]["report"] == found.report
    assert told.events[-1].kind == "withheld"
    assert "3 records of this node are in it" in told.events[-1].body["reason"]
    with pytest.raises(LocalProtocolError, match="withheld"):
        gate.send(release, payload, None)
    with pytest.raises(LocalProtocolError, match="withheld"):
        decide(node.log, release.number, release=True, by="ada", reason="please")
    assert gate.open_releases(node.plan.digest()) == []


def test_a_release_that_is_logged_and_not_decided_is_decided_by_its_record(node: Any, auditor: Auditor) -> None:
    found = audited(auditor, node, planted(node, 3))
    decided, gate_class = [], type(node.gate)
    kept = gate_class._decide
    try:
        gate_class._decide = lambda self, release, policy, until: decided.append(release.number)
        _, _, release = logged(node, planted(node, 3), found)
        assert release.state == "logged"
    finally:
        gate_class._decide = kept
    _, _, again = logged(node, planted(node, 3), None)
    assert (again.number, again.state) == (release.number, "withheld")
    assert decided == [release.number]


def test_what_copies_alone_cannot_decide_leaves_unless_the_policy_holds_it(node: Any, auditor: Auditor) -> None:
    found = audited(auditor, node, node.contribution())
    assert (found.result, found.then) == ("INCONCLUSIVE", "leave")
    strict = audited(auditor, node, node.contribution(), AuditRules(on_inconclusive="hold"))
    assert strict.then == "hold"
    _, _, release = logged(node, node.contribution(), strict, until="2026-01-01T00:00:00Z")
    assert release.state == "held"
    told = fold(node.log.records())[release.number].events[-1].body
    assert told["reason"].startswith("its membership audit is INCONCLUSIVE: no copy")


def test_an_audit_that_fails_is_invalid_and_held(node: Any, auditor: Auditor) -> None:
    def broken() -> Dataset:
        raise ValueError("no such thing")

    contribution = node.contribution()
    found = auditor.audit(node.plan, node.method, node.key(), contribution, node.data, broken, AuditRules())
    assert (found.result, found.then, found.report) == ("INVALID", "hold", "")
    assert found.reason == "the audit failed: ValueError: no such thing"
    _, _, release = logged(node, contribution, found)
    assert release.state == "held"


def test_what_is_not_audited_says_so(node: Any, auditor: Auditor, plan_of: Callable[..., Any]) -> None:
    statistics, key = node.contribution("statistics"), node.key("statistics")

    def asked(plan: Any, key: Any, contribution: Contribution, rules: AuditRules) -> str:
        found = auditor.audit(plan, node.method, key, contribution, node.data, lambda: nobody(node.data), rules)
        assert (found.result, found.then, found.report) == ("not audited", "leave", "")
        return found.reason

    assert asked(node.plan, key, statistics, AuditRules()) == "no condensed data"
    off = asked(node.plan, node.key(), planted(node, 3), AuditRules(before_release="off"))
    assert off == "the policy says audit.before_release = off"
    private = plan_of(privacy={"kind": "release", "sigma": 1.0}, randomness="private")
    assert "may not depend on the records" in asked(private, node.key(), planted(node, 3), AuditRules())
    assert node.store.audit_path("x").parent.is_dir()
    assert not list(node.store.audit_path("x").parent.iterdir())


def test_the_report_stays_in_the_store_and_is_verified_with_the_log(node: Any, auditor: Auditor) -> None:
    found = audited(auditor, node, node.contribution())
    logged(node, node.contribution(), found)
    path = node.store.audit_path(found.report)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert hashlib.sha256(path.read_bytes()).hexdigest() == found.report
    report = json.loads(path.read_bytes())
    assert (report["verdict"], report["mode"]) == ("INCONCLUSIVE", "release")
    public = load_identity(node.settings.identity).public_bytes
    verify_node(node.settings, public)
    path.write_bytes(path.read_bytes().replace(b"INCONCLUSIVE", b"NO-LEAK-HERE"))
    with pytest.raises(ReleaseLogError, match="release 1: .* is not what the log says: the report of its audit"):
        verify_node(node.settings, public)


def test_the_same_bytes_are_audited_alike_after_a_crash(node: Any, auditor: Auditor) -> None:
    first = audited(auditor, node, node.contribution())
    assert audited(auditor, node, node.contribution()) == first
    assert len(list(node.store.audit_path("x").parent.iterdir())) == 1


def test_words() -> None:
    found = Audited("LEAK", "one is in it", "withhold", "a" * 64, "quick", "b" * 64)
    body = {"audit": found.to_json()}
    assert Audited.of(body) == found
    assert audit_line(body) == "LEAK: one is in it"
    assert "never leaves" in audit_words(body)[1]
    assert audit_words({"audit": {"result": "not audited"}}) == ["Membership audit: not audited."], "of before"


def test_the_plan_in_words_says_what_is_audited(node: Any, plan_of: Callable[..., Any]) -> None:
    policy = node.current().policy
    condensing = " ".join(audit_lines(node.plan, policy))
    assert "before it leaves" in condensing
    assert "copies alone are sought" in condensing
    average = plan_of(method={"name": "fedavg", "local_steps": 1})
    assert list(audit_lines(average, policy)) == ["membership audit: none, since no condensed data leaves"]
