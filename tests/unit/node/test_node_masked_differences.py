"""Sums of two runs that differ by one node: counted and warned of, at that node as well."""

from __future__ import annotations

import io
import json

import pytest

from fedsecure.cli import run
from fedsecure.secagg.protocol.results import SessionResult
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.assemble import open_log
from fedsecure_node.cli.first_steps import init_node
from fedsecure_node.log.absences import absence_lines
from fedsecure_node.log.decisions import note
from fedsecure_node.log.differences import apart_over_runs, differing
from fedsecure_node.log.maskedrounds import MaskedRound, known_sums, masked_rounds
from fedsecure_node.log.releases import fold
from fedsecure_node.masking.settling import settle_sums
from fedsecure_node.progress import PlainReporter
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store

OWN = "hospital-a"
NAMES = (OWN, "hospital-b", "hospital-c", "hospital-d")
WITHOUT_D, WITHOUT_OWN = NAMES[:3], NAMES[1:]


def a_sum(plan, survivors=NAMES, *, round_=0, cohort="hospitals", method="fedaf", exchange="statistics"):
    return MaskedRound(1, plan, plan, method, round_, exchange, cohort, NAMES, survivors, OWN in survivors)


@pytest.mark.parametrize(
    ("sums", "due"),
    [
        ([], {}),
        ([a_sum("a"), a_sum("b")], {}),
        ([a_sum("a"), a_sum("b", WITHOUT_D)], {"hospital-d": 1}),
        ([a_sum("b", WITHOUT_D), a_sum("a")], {"hospital-d": 1}),
        ([a_sum("a"), a_sum("a", WITHOUT_D)], {}),
        ([a_sum("a"), a_sum("b", WITHOUT_OWN)], {OWN: 1}),
        ([a_sum("a"), a_sum("b", NAMES[:2])], {}),
        ([a_sum("a", WITHOUT_D), a_sum("b", WITHOUT_OWN)], {}),
        ([a_sum("a"), a_sum("b", WITHOUT_D, cohort="others")], {}),
        ([a_sum("a"), a_sum("b", WITHOUT_D, method="fedavg")], {}),
        ([a_sum("a"), a_sum("b", WITHOUT_D, exchange="round")], {}),
        (
            [a_sum("a"), a_sum("a", round_=1), a_sum("a", WITHOUT_D, round_=2), a_sum("b", WITHOUT_D), a_sum("c")],
            {"hospital-d": 4},
        ),
    ],
)
def test_pairs_over_runs(sums, due):
    assert apart_over_runs(sums) == due


def test_the_count_is_that_of_all_pairs():
    lists = [NAMES, WITHOUT_D, WITHOUT_OWN, NAMES[:2]]
    sums = [
        a_sum(plan, lists[(at * step) % 4], round_=at)
        for plan, step in (("a", 1), ("b", 3), ("c", 2))
        for at in range(9)
    ]
    plainly = {}
    for index, one in enumerate(sums):
        for other in sums[:index]:
            apart = set(one.survivors) ^ set(other.survivors)
            if one.plan != other.plan and len(apart) == 1:
                node = apart.pop()
                plainly[node] = plainly.get(node, 0) + 1
    assert apart_over_runs(sums) == dict(sorted(plainly.items()))
    assert len(plainly) > 1


def test_rounds_of_one_run_are_those_that_follow_one_another():
    sums = [a_sum("a"), a_sum("b", WITHOUT_D), a_sum("a", WITHOUT_OWN, round_=1)]
    assert [(one.plan, other.plan, node) for one, other, node in differing(sums)] == [("a", "a", OWN)]


def test_the_words():
    assert absence_lines([a_sum("a"), a_sum("b", WITHOUT_OWN)]) == [
        "warning: 1 pair of sums in two runs differ by node hospital-a alone: where both began from nearly the same "
        "model, the difference is about what hospital-a sent"
    ]


# by the log


def body(plan, round_=0):
    about = {"name": "hospitals", "nodes": list(NAMES), "threshold": 3}
    return {
        "plan": {"digest": plan, "name": f"toy-{plan[:1]}", "method": "fedaf"},
        "payload": {"sha256": "e" * 64, "bytes": 16},
        "round": round_, "step": 0, "attempt": 0, "exchange": "statistics", "class_counts": None,
        "guarantee": {"label": "none"}, "secagg": {"cohort": about, "streams": [{"bytes": 8}]},
    }  # fmt: skip


def contributed(log, plan, *events, round_=0):
    number = log.append("release", body(plan, round_), only_if=lambda _: None).seq
    for event in ("sending", "acknowledged", *events):
        kind, more = (event, {}) if isinstance(event, str) else event
        note(log, number, kind, more)
    return number


def unmasked(survivors):
    return "unmasked", {"transcript3": "cd" * 32, "survivors": list(survivors)}


def announced(node, survivors):
    """What the node says when the sum of round 1 of its own plan is announced."""
    about = (bytes([3]) * 32, (bytes(32),), tuple(survivors), bytes(32), 0, "statistics")
    work = pb.Exchange(exchange="condensation", round=0, result=SessionResult(*about).to_bytes())
    said = io.StringIO()
    settle_sums(node.gate, PlainReporter(said), work, node.method, node.key("condensation"), OWN)
    return said.getvalue()


def test_a_sum_of_another_run_without_a_node(node):
    contributed(node.log, "f" * 64, "masked", unmasked(NAMES))
    contributed(node.log, node.plan.digest(), "masked")
    said = announced(node, WITHOUT_D)
    assert "its sum and that of toy-f, round 1 statistics differ by node hospital-d alone" in said


def test_a_sum_of_another_run_that_this_node_was_left_out_of(node):
    contributed(node.log, "f" * 64, "masked", unmasked(NAMES))
    number = contributed(node.log, node.plan.digest())
    said = announced(node, WITHOUT_OWN)
    assert f"release {number}: the sum over 3 nodes is without it" in said
    assert "its sum and that of toy-f, round 1 statistics differ by node hospital-a alone" in said
    releases = fold(node.log.records()).values()
    assert [each.inside for each in known_sums(releases)] == [True, False]
    assert [each.survivors for each in masked_rounds(releases)] == [NAMES]


def test_a_round_that_this_node_was_left_out_of_in_the_same_run(node):
    contributed(node.log, node.plan.digest(), "masked", unmasked(NAMES))
    contributed(node.log, node.plan.digest(), round_=1)
    about = (bytes([3]) * 32, (bytes(32),), WITHOUT_OWN, bytes(32), 1, "statistics")
    work = pb.Exchange(exchange="condensation", round=1, result=SessionResult(*about).to_bytes())
    said = io.StringIO()
    settle_sums(node.gate, PlainReporter(said), work, node.method, node.key("condensation", 1), OWN)
    assert "1 pair of successive rounds differ by node hospital-a alone" in said.getvalue()


def test_it_is_said_once_for_each_list_of_survivors(node):
    contributed(node.log, "f" * 64, "masked", unmasked(NAMES))
    contributed(node.log, node.plan.digest(), "masked", unmasked(WITHOUT_D))
    contributed(node.log, node.plan.digest(), "masked", round_=1)
    about = (bytes([3]) * 32, (bytes(32),), WITHOUT_D, bytes(32), 1, "statistics")
    work = pb.Exchange(exchange="condensation", round=1, result=SessionResult(*about).to_bytes())
    said = io.StringIO()
    settle_sums(node.gate, PlainReporter(said), work, node.method, node.key("condensation", 1), OWN)
    assert "differ" not in said.getvalue()


def test_node_releases_warns(tmp_path, capsys):
    folder = tmp_path / "node"
    init_node(folder, node=OWN, federation="heart-study", coordinator="localhost:1")
    settings = load_settings(folder)
    with Store(settings.store) as store:
        log = open_log(store, settings)
        contributed(log, "f" * 64, "masked", unmasked(NAMES))
        contributed(log, "e" * 64, "masked", unmasked(WITHOUT_D))
    assert run(["node", "releases", "--dir", str(folder)]) == 0
    assert "warning: 1 pair of sums in two runs differ by node hospital-d alone" in capsys.readouterr().out
    assert run(["node", "releases", "--json", "--dir", str(folder)]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert "differ by node hospital-d alone" in warning
