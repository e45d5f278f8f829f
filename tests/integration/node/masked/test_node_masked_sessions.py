"""The node daemon in masked sums, over real mutual TLS: what leaves, when, and what its log says first."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fedsecure.cli import run as command
from fedsecure.methods import build_method
from fedsecure.secagg.protocol.results import SessionResult
from fedsecure.secagg.values.streams import flatten
from fedsecure.tensors import Tensors
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.log.releases import fold
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store, now_ms

ONE_SUM = ["release", "sending", "acknowledged", "masked", "confirmed", "unmasked"]


def kinds(site):
    return [r.kind for r in site.records()]


def release_of(site, number=0):
    return list(fold(site.records()).values())[number]


def own_half(site, release):
    """The summed half as the store keeps it."""
    secagg = release.body["secagg"]
    data = (site.folder / "store" / "releases" / f"{secagg['kept']}.bin").read_bytes()
    return Tensors.from_bytes(data[: secagg["summed"]["bytes"]])


def test_the_sum_holds_what_the_node_computed_and_nothing_of_it_left_before(site, script, cohort, masked_plan):
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    session = node.until(lambda: script.sums.session)
    node.until(lambda: session.sums or session.failure)
    node.end()
    assert node.error is None, node.text
    assert session.sums.survivors == ("hospital-a", "hospital-b", "hospital-c")
    assert kinds(site) == ONE_SUM
    release = release_of(site)
    (exchange,) = build_method(plan).exchanges
    assert script.complete[0, exchange, 0] == Tensors().to_bytes() * 2, "no tensor left with the contribution"
    summed = own_half(site, release)
    assert set(summed) == {spec.name for spec in build_method(plan).schema(exchange).summed}
    for stream in session.streams:
        due, clipped = flatten(stream, summed, nodes=3)
        assert clipped == 0
        assert np.array_equal(session.own()[stream.spec.name], due)
    assert release.state == "unmasked"


def test_the_record_says_what_leaves_and_what_is_hidden(site, script, cohort, masked_plan, capsys):
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.sums)
    node.end()
    session, release = script.sums.session, release_of(site)
    body = release.body
    assert body["payload"]["bytes"] == len(Tensors().to_bytes()) * 2
    assert body["secagg"]["cohort"] == {
        "name": "hospitals", "version": 1, "digest": cohort.digest,
        "nodes": ["hospital-a", "hospital-b", "hospital-c"], "threshold": 3,
    }  # fmt: skip
    assert [s["name"] for s in body["secagg"]["streams"]] == [s.spec.name for s in session.streams]
    assert all("inside a masked sum of at least 3 of 3 nodes" in line for line in body["learns"])
    assert any("exact sum over the nodes" in line for line in body["secagg"]["learns"])
    masked, unmasked = (e.body for e in release.events if e.kind in ("masked", "unmasked"))
    assert [s["bytes"] for s in masked["streams"]] == [s.spec.nbytes for s in session.streams]
    assert unmasked["transcript3"] == session.sums.transcript3.hex()
    assert unmasked["survivors"] == list(session.sums.survivors)
    assert command(["node", "verify-log", "--dir", str(site.folder)]) == 0
    assert command(["node", "releases", "--dir", str(site.folder)]) == 0
    assert "under masks" in capsys.readouterr().out
    assert command(["node", "preview", "1", "--out", str(site.folder / "p"), "--dir", str(site.folder)]) == 0
    page = (site.folder / "p" / "release-1.html").read_text()
    assert "summed, inside a masked sum of at least 3 of 3 nodes" in page
    kept = site.folder / "store" / "releases" / f"{body['secagg']['kept']}.bin"
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    assert command(["node", "verify-log", "--dir", str(site.folder)]) == 18, "the hidden half is verified as well"


def test_the_log_is_on_disk_before_masked_bytes_and_shares_leave(site, script, cohort, masked_plan):
    seen = {}

    def look(leg):
        lines = (site.folder / "store" / "releases.jsonl").read_bytes().splitlines()
        seen.setdefault(leg, [json.loads(line)["record"]["kind"] for line in lines])

    script.sums.before = look
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.sums)
    node.end()
    assert seen == {0: ONE_SUM[:3], 1: ONE_SUM[:3], 2: ONE_SUM[:4], 3: ONE_SUM[:5], 4: ONE_SUM}


def test_a_reply_that_was_lost_is_answered_again_with_the_same_bytes(site, script, cohort, masked_plan):
    script.sums.lost_replies, script.sums.cut_vectors = 2, 1
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.sums)
    node.end()
    assert node.error is None, node.text
    assert kinds(site) == ONE_SUM, "nothing is noted twice"


def test_two_rounds_are_chained(site, script, cohort, masked_plan):
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.sums.session and script.sums.session.sums)
    script.sums.ask(plan, 1, result=script.sums.session.result)
    node.until(lambda: len(script.sums.sessions) == 2 and script.sums.session.sums)
    script.end(plan)
    node.until(lambda: "completed" in node.text)
    node.end()
    assert node.error is None, node.text
    assert kinds(site) == ONE_SUM * 2
    assert script.sums.session.config.prev_result


def test_both_exchanges_of_fedaf(site, script, cohort, masked_plan):
    plan = masked_plan("fedaf", rounds=1)
    script.offer(plan)
    script.sums.ask(plan, exchange="statistics")
    node = site.start()
    session = node.until(lambda: script.sums.session)
    node.until(lambda: session.sums)
    script.sums.ask(plan, exchange="condensation", cohort="", result=session.result)
    node.until(lambda: (0, "condensation", 0) in script.complete)
    script.end(plan)
    node.until(lambda: "completed" in node.text)
    node.end()
    assert node.error is None, node.text
    assert kinds(site) == [*ONE_SUM, "release", "sending", "acknowledged"]
    assert "secagg" not in release_of(site, 1).body


def test_a_release_that_is_held_reaches_a_session_only_after_a_person_lets_it_go(site, script, cohort, masked_plan):
    site.policy(hold="true")
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: "is held until a person decides" in node.text)
    assert script.sums.session is None
    assert command(["node", "release", "1", "--dir", str(site.folder)]) == 0
    node.until(lambda: script.sums.session and script.sums.session.sums)
    node.end()
    assert kinds(site) == ["release", "held", "released", *ONE_SUM[1:]]


def test_a_sum_that_was_read_without_the_shares_of_this_node_is_in_its_log(site, script, cohort, masked_plan, capsys):
    """It confirms and dies; the others open the sum, which the next exchange announces."""
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    script.sums.before = lambda leg: node.stop.set() if leg == 3 else None
    node = site.start()
    node.join()
    assert kinds(site) == ONE_SUM[:5]
    release, session = release_of(site), script.sums.session
    (confirmed,) = (e.body for e in release.events if e.kind == "confirmed")
    assert confirmed["survivors"] == ["hospital-a", "hospital-b", "hospital-c"]
    assert "may have been read: this node confirmed it" in release.words()
    script.sums.before = lambda leg: None
    session.machine.drop("hospital-a", "vanished")
    session.pump()
    read = SessionResult(
        bytes.fromhex(confirmed["transcript3"]),
        (bytes(32),) * len(session.streams),
        tuple(confirmed["survivors"]),
        bytes(32),
        session.work.round,
        session.work.exchange,
    )
    script.sums.ask(plan, 1, result=lambda b: replace(read, next_state_digest=bytes.fromhex(b)).to_bytes())
    node = site.start()
    node.until(lambda: len(script.sums.sessions) == 2 and script.sums.session.sums)
    node.end()
    assert node.error is None, node.text
    assert kinds(site) == [*ONE_SUM[:5], "announced", *ONE_SUM]
    release = release_of(site)
    (announced,) = (e.body for e in release.events if e.kind == "announced")
    assert announced == confirmed
    assert "the coordinator read the sum over 3 nodes that it is inside" in node.text
    assert command(["node", "verify-log", "--dir", str(site.folder)]) == 0
    assert command(["node", "preview", "1", "--out", str(site.folder / "p"), "--dir", str(site.folder)]) == 0
    page = (site.folder / "p" / "release-1.html").read_text()
    assert "This node confirmed on " in page
    assert "the coordinator announced the sum over hospital-a, hospital-b, hospital-c: it was read." in page
    capsys.readouterr()
    assert command(["node", "cohort", "show", "--dir", str(site.folder), "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["cohorts"]
    assert (shown["sums"], shown["own"]["contributed"]) == (2, 2)


@pytest.mark.parametrize("state", [pb.RUN_STATE_COMPLETED, pb.RUN_STATE_ABORTED])
def test_a_summed_half_that_never_left_is_said_so_once_the_run_is_over(
    site, script, cohort, masked_plan, capsys, state
):
    script.sums.make = lambda plan, work: None
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: "the coordinator has it" in node.text)
    assert command(["node", "releases", "--dir", str(site.folder)]) == 0
    assert "which waits to leave under masks" in capsys.readouterr().out
    script.end(plan, state, "over")
    node.until(lambda: release_of(site).state == "unsummed")
    node.end()
    assert node.error is None, node.text
    assert kinds(site) == [*ONE_SUM[:3], "closed"]
    assert command(["node", "releases", "--dir", str(site.folder)]) == 0
    said = capsys.readouterr().out
    assert "sent, but for its summed half, which never left" in said
    assert "bytes under masks" not in said
    assert command(["node", "verify-log", "--dir", str(site.folder)]) == 0


def test_a_store_that_an_earlier_version_left_open_is_closed_at_the_next_start(site, script, cohort, masked_plan):
    script.sums.make = lambda plan, work: None
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: "the coordinator has it" in node.text)
    node.end()
    with Store(load_settings(site.folder).store) as store:
        store.runs.end(plan.digest(), "completed", "", 0, now_ms())
    assert kinds(site) == ONE_SUM[:3]
    node = site.start()
    node.until(lambda: release_of(site).state == "unsummed")
    node.end()
    assert node.error is None, node.text
