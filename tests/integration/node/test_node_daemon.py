"""The node daemon over real mutual TLS, against a coordinator that misbehaves as a test asks for."""

from __future__ import annotations

import json
import threading
import time

import pytest

from fedsecure.cli import run as command
from fedsecure.errors import (
    CertificateError,
    ConfigError,
    DataError,
    PolicyError,
    ReleaseLogError,
    RemoteProtocolError,
    RunAborted,
    StoreError,
)
from fedsecure.tensors import Tensors
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.link.connect import connect
from fedsecure_node.log.releases import fold
from fedsecure_node.plans import institution
from fedsecure_node.settings import load_settings


def kinds(site):
    return [r.kind for r in site.records()]


def test_a_run_from_offer_to_end(site, script, plan_of):
    plan = plan_of("fedaf")
    script.offer(plan)
    for round_ in (0, 1):
        for exchange in ("statistics", "condensation"):
            script.ask(plan, round_, exchange=exchange)
    script.end(plan)
    node = site.start(exit_when_done=True)
    node.join()
    assert node.error is None, node.text
    assert script.joined == [plan.digest()]
    assert sorted(script.complete) == [(r, e, 0) for r in (0, 1) for e in ("condensation", "statistics")]
    assert kinds(site) == ["release", "sending", "acknowledged"] * 4
    for release in fold(site.records()).values():
        path = site.folder / "store" / "releases" / f"{release.payload}.bin"
        key = (release.body["round"], release.body["exchange"], 0)
        assert script.complete[key] == path.read_bytes()
        assert release.body["destination"]["address"] == site.address
        assert release.body["destination"]["certificate"].startswith("SHA256:")
        assert (release.body["class_counts"] or {"other": 0})["other"] == 0  # below the floor of records
    assert "completed" in node.text


def test_a_coordinator_that_ends_with_its_last_run_is_not_waited_for(site, script, plan_of):
    script.ends_with_the_run = True
    script.offer(plan := plan_of())
    script.ask(plan)
    script.end(plan)
    node = site.start(exit_when_done=True)
    node.join()
    assert node.error is None, node.text
    assert script.told_the_end
    assert "connecting again" not in node.text


def test_the_log_is_on_disk_before_the_first_byte(site, script, plan_of):
    seen = []
    script.before_upload = lambda: seen.append((site.folder / "store" / "releases.jsonl").read_bytes())
    script.offer(plan := plan_of())
    script.ask(plan)
    script.end(plan)
    site.start(exit_when_done=True).join()
    lines = [json.loads(line)["record"]["kind"] for line in seen[0].splitlines()]
    assert lines == ["release", "sending"]


def test_uploads_and_downloads_are_resumed_where_they_were_cut(site, script, plan_of):
    script.cut_uploads, script.cut_downloads = 2, 2
    script.offer(plan := plan_of())
    script.ask(plan)
    script.end(plan)
    node = site.start(exit_when_done=True)
    node.join()
    assert node.error is None, node.text
    assert script.offsets[:3] == [0, 4096, 8192]
    assert kinds(site) == ["release", "sending", "acknowledged"]


def test_a_receipt_that_was_lost_is_asked_for_again_and_nothing_is_sent_twice(site, script, plan_of):
    script.forget_acknowledgement = True
    script.offer(plan := plan_of())
    script.ask(plan)
    script.end(plan)
    node = site.start(exit_when_done=True)
    node.join()
    assert node.error is None, node.text
    assert kinds(site) == ["release", "sending", "acknowledged"]


def test_after_a_restart_the_same_bytes_are_sent_not_computed_again(site, script, plan_of):
    script.offer(plan := plan_of())
    script.ask(plan)
    script.chunk = 4096
    script.cut_uploads = 10**6
    node = site.start()
    node.until(lambda: len(script.partial) and script.offsets.count(0) + len(script.offsets) > 1)
    node.end()
    assert node.error is None
    assert kinds(site) == ["release", "sending"]
    (digest,) = script.partial
    script.partial[digest] = script.partial[digest][:100]  # as if the coordinator had kept less
    script.cut_uploads = 0
    script.end(plan)

    from fedsecure.methods import build_method

    class Again:
        def __init__(self, plan):
            self._method = build_method(plan)

        def client_update(self, *_):
            raise AssertionError("computed again")

        def __getattr__(self, name):
            return getattr(self._method, name)

    node = site.start(exit_when_done=True, build_method=Again)
    node.until(lambda: script.complete or node.error or "left" in node.text)
    node.join()
    assert script.complete, node.text
    assert kinds(site) == ["release", "sending", "acknowledged"]
    (sent,) = script.complete.values()
    path = site.folder / "store" / "releases" / f"{digest}.bin"
    assert sent == path.read_bytes()


def test_the_coordinator_goes_away_and_comes_back(site, script, plan_of):
    script.offer(plan := plan_of())
    node = site.start()
    node.until(lambda: script.joined)
    hellos = script.hellos
    script.cut_polls = 2
    node.until(lambda: script.hellos >= hellos + 2)
    script.ask(plan)
    node.until(lambda: script.complete)
    node.end()
    assert node.error is None
    assert node.text.count("connecting again") == 2


def test_a_plan_waits_for_a_person_and_runs_within_seconds_of_approval(site, script, plan_of, capsys):
    site.policy(approval="manual")
    script.offer(plan := plan_of())
    node = site.start()
    node.until(lambda: "waits for approval" in node.text)
    assert script.joined == []
    assert command(["node", "approve", plan.digest()[:8], "--dir", str(site.folder)]) == 0
    assert plan.digest() in capsys.readouterr().out
    start = time.monotonic()
    node.until(lambda: script.joined)
    assert time.monotonic() - start < 20
    node.end()


def test_a_policy_that_forbids_the_plan_is_named_to_the_coordinator(site, script, plan_of):
    script.offer(plan := plan_of(rounds=500))
    node = site.start(exit_when_done=True)
    node.join()
    assert isinstance(node.error, PolicyError)
    assert script.joined == []
    assert script.refusals == [(plan.digest(), "the institution's policy forbids it (rule plans.max_rounds)")]


def test_no_policy_no_run(site, script, plan_of, monkeypatch):
    monkeypatch.setattr(institution, "ABSENT_GRACE_S", 1.0)
    (site.folder / "policy.toml").unlink()
    script.offer(plan_of())
    node = site.start(exit_when_done=True)
    node.join()
    assert isinstance(node.error, PolicyError)
    assert "no policy" in str(node.error)
    assert script.joined == []
    assert len(script.refusals) == 1
    assert str(site.folder) not in script.refusals[0][1]


def test_records_of_small_classes_are_neither_trained_on_nor_counted(site, script, plan_of):
    script.offer(plan := plan_of())
    script.ask(plan)
    script.end(plan)
    node = site.start(exit_when_done=True)
    node.join()
    assert node.error is None, node.text
    (data,) = script.complete.values()
    (release,) = fold(site.records()).values()
    summed = Tensors.from_bytes(data[: release.body["payload"]["summed_bytes"]])
    assert int(summed["records"][0]) == 27  # 15 + 12, without the class of 4
    assert release.body["min_records_per_class"] == 10


@pytest.mark.parametrize("fault", ["empty", "typo", "writable"])
def test_a_policy_at_fault_for_a_moment_holds_the_node_still_and_no_longer(site, script, plan_of, fault):
    script.offer(plan := plan_of())
    script.ask(plan)
    node = site.start()
    node.until(lambda: script.complete)
    path = site.folder / "policy.toml"
    if fault == "writable":
        path.chmod(0o666)
    else:
        path.write_text("" if fault == "empty" else path.read_text().replace("approval", "aproval"))
    script.ask(plan, 1)
    node.until(lambda: "holds still" in node.text)
    time.sleep(1.5)
    assert (len(script.complete), script.refusals) == (1, [])
    assert kinds(site) == ["release", "sending", "acknowledged"]
    path.chmod(0o644)
    site.policy()
    node.until(lambda: len(script.complete) == 2)
    node.end()
    assert script.refusals == []


def test_a_policy_that_is_gone_for_good_ends_the_run(site, script, plan_of, monkeypatch):
    monkeypatch.setattr(institution, "ABSENT_GRACE_S", 2.0)
    script.offer(plan := plan_of())
    node = site.start()
    node.until(lambda: script.joined)
    (site.folder / "policy.toml").unlink()
    node.until(lambda: "holds still" in node.text)
    assert script.refusals == []
    node.until(lambda: script.refusals)
    node.end()
    assert script.refusals == [(plan.digest(), "no usable policy at this institution, so nothing is allowed")]


def test_a_policy_that_forbids_while_it_computes_lets_nothing_leave(site, script, plan_of):
    script.offer(plan := plan_of(settings={"local_steps": 3000}))
    script.ask(plan)
    node = site.start()
    node.until(lambda: "computing" in node.text)
    site.policy(min_records=28)
    node.until(lambda: script.refusals or script.complete)
    node.end()
    assert script.complete == {}
    assert "rule plans.min_records" in script.refusals[0][1]


def test_a_policy_made_stricter_in_the_middle_stops_the_run(site, script, plan_of):
    script.offer(plan := plan_of())
    script.ask(plan)
    node = site.start()
    node.until(lambda: script.complete)
    site.policy(max_bytes=10)
    script.ask(plan, 1)
    node.until(lambda: script.refusals)
    node.end()
    assert "rule release.max_bytes" in script.refusals[0][1]
    assert kinds(site) == ["release", "sending", "acknowledged"]
    assert len(script.complete) == 1


def test_a_plan_refused_by_a_person_in_the_middle_is_left(site, script, plan_of):
    script.offer(plan := plan_of())
    node = site.start()
    node.until(lambda: script.joined)
    assert command(["node", "refuse-plan", plan.digest(), "--reason", "ethics board", "--dir", str(site.folder)]) == 0
    node.until(lambda: script.refusals)
    node.end()
    assert script.refusals[0][1] == "the institution refused the plan: ethics board"


def test_a_run_that_was_left_is_known_to_be_over_once_the_coordinator_says_so(site, script, plan_of, capsys):
    script.offer(plan := plan_of())
    node = site.start()
    node.until(lambda: script.joined)
    folder = ["--dir", str(site.folder)]
    assert command(["node", "refuse-plan", plan.digest(), "--reason", "ethics board", *folder]) == 0
    node.until(lambda: script.refusals)
    script.states[plan.digest()] = pb.RUN_STATE_ABORTED

    def offered():
        capsys.readouterr()
        assert command(["node", "plans", "--json", *folder]) == 0
        return json.loads(capsys.readouterr().out)["plans"][0]["offered"]

    node.until(lambda: offered() == "aborted")
    node.end()
    for verb in (["approve"], ["approve", "--rejoin"], ["refuse-plan", "--reason", "late"]):
        assert command(["node", *verb, plan.digest(), *folder]) == 8
        assert "its run is over (aborted)" in capsys.readouterr().err


def test_held_until_a_person_decides(site, script, plan_of, tmp_path, capsys):
    script.offer(plan := plan_of("fedaf"))
    script.ask(plan, exchange="condensation")
    node = site.start(hold=True)
    node.until(lambda: "is held until a person decides" in node.text)
    assert script.partial == {}
    folder = ["--dir", str(site.folder)]
    assert command(["node", "preview", "1", "--out", str(tmp_path / "look"), *folder]) == 0
    assert (tmp_path / "look" / "release-1.png").exists()
    assert command(["node", "release", "1", *folder]) == 0
    start = time.monotonic()
    node.until(lambda: script.complete)
    assert time.monotonic() - start < 20
    node.until(lambda: kinds(site)[-1] == "acknowledged")
    node.end()
    assert kinds(site) == ["release", "held", "released", "sending", "acknowledged"]
    capsys.readouterr()


def test_a_refused_release_never_leaves_and_the_run_is_left(site, script, plan_of, capsys):
    site.policy(hold="true")
    script.offer(plan := plan_of("fedaf"))
    script.ask(plan, exchange="condensation")
    node = site.start()
    node.until(lambda: "is held until a person decides" in node.text)
    assert command(["node", "refuse", "1", "--reason", "patient 4711 shows", "--dir", str(site.folder)]) == 0
    node.until(lambda: script.refusals)
    node.end()
    assert script.partial == {}
    assert "4711" not in str(script.refusals)
    assert kinds(site) == ["release", "held", "refused"]
    capsys.readouterr()


def test_a_broadcast_that_the_policy_does_not_bear_touches_no_record(site, script, plan_of):
    site.policy(max_abs_parameter=0.001)
    script.offer(plan := plan_of())
    script.ask(plan)
    node = site.start(exit_when_done=True)
    node.join()
    assert isinstance(node.error, PolicyError)
    assert "broadcast.max_abs_parameter" in str(node.error)
    assert "rule broadcast.max_abs_parameter" in script.refusals[0][1]
    assert kinds(site) == []


@pytest.mark.parametrize("fault", ["digest", "size", "tensors", "nan"])
def test_a_broadcast_that_is_not_what_the_plan_says(site, script, plan_of, fault):
    import hashlib

    import numpy as np

    from fedsecure.tensors import Tensors

    script.offer(plan := plan_of())
    script.ask(plan)
    work = script.work[0]
    good = Tensors.from_bytes(script.broadcasts[work.broadcast_digest])
    if fault == "digest":
        script.broadcasts[work.broadcast_digest] = good.with_({"x": np.zeros(1, np.float32)}).to_bytes()[
            : work.broadcast_bytes
        ]
    elif fault == "size":
        work.broadcast_bytes = 500_000_000
    else:
        name = next(iter(good))
        bad = (
            good.with_({"spy": np.zeros(3)})
            if fault == "tensors"
            else good.with_({name: good[name] * np.float32(np.nan)})
        )
        data = bad.to_bytes()
        work.broadcast_digest, work.broadcast_bytes = hashlib.sha256(data).hexdigest(), len(data)
        script.broadcasts[work.broadcast_digest] = data
    node = site.start(exit_when_done=True)
    node.join()
    assert isinstance(node.error, RemoteProtocolError), node.text
    assert kinds(site) == []
    assert "broadcast" in script.refusals[0][1]


@pytest.mark.parametrize(("round_", "exchange"), [(2, "round"), (0, "everything")])
def test_work_that_the_plan_does_not_know(site, script, plan_of, round_, exchange):
    script.offer(plan := plan_of())
    script.ask(plan)
    script.work[0].round = round_
    if exchange == "everything":
        script.work[0].exchange = exchange
    node = site.start(exit_when_done=True)
    node.join()
    assert isinstance(node.error, RemoteProtocolError)
    assert "the coordinator asks for round" in str(node.error)


def test_the_same_exchange_with_another_broadcast_is_refused(site, script, plan_of):
    script.offer(plan := plan_of())
    script.ask(plan)
    node = site.start()
    node.until(lambda: script.complete)
    script.ask(plan, 0, scale=0.5)
    node.until(lambda: script.refusals)
    node.end()
    assert "asks again, with another broadcast" in script.refusals[0][1]
    assert kinds(site) == ["release", "sending", "acknowledged"]


def test_records_that_do_not_fit_are_not_described_to_the_coordinator(site, script, plan_of):
    script.offer(plan_of(task={"kind": "image", "classes": ["x", "y"], "shape": [1, 8, 8]}))
    node = site.start(exit_when_done=True)
    node.join()
    assert isinstance(node.error, DataError)
    assert script.refusals[0][1] == "checking the data: the institution's records cannot take part"


def test_too_few_records_take_no_part_until_the_policy_says_so(site, script, plan_of):
    site.policy(min_records=28)
    script.offer(plan := plan_of())
    node = site.start()
    node.until(lambda: script.refusals)
    assert script.joined == []
    assert script.refusals == [
        (plan.digest(), "checking the data: the institution's policy forbids it (rule plans.min_records)")
    ]
    site.policy(min_records=27)  # the four records of the small class do not count
    node.until(lambda: script.joined)
    site.policy(min_records=28)
    script.ask(plan)
    node.until(lambda: len(script.refusals) == 2)
    node.end()
    assert script.complete == {}
    assert kinds(site) == []


@pytest.mark.parametrize(
    ("refused", "says", "logged"),
    [
        ("refuse_upload", "not accepted", ["release", "sending", "lapsed"]),
        ("refuse_download", "over before it was begun", []),
    ],
    ids=["upload", "download"],
)
def test_an_exchange_that_closed_in_the_meantime_is_noted_and_the_run_goes_on(
    site, script, plan_of, remote_error, refused, says, logged
):
    setattr(script, refused, remote_error("remote"))
    script.offer(plan := plan_of())
    script.ask(plan)
    node = site.start()
    node.until(lambda: says in node.text)
    setattr(script, refused, None)
    script.partial.clear()
    script.ask(plan, 1)
    node.until(lambda: script.complete)
    node.until(lambda: kinds(site)[-1:] == ["acknowledged"])
    node.end()
    assert script.refusals == []
    assert kinds(site) == [*logged, "release", "sending", "acknowledged"]


def test_an_aborted_run_is_the_exit(site, script, plan_of):
    script.offer(plan := plan_of())
    script.end(plan, pb.RUN_STATE_ABORTED, "quorum: hospital-b is missing")
    node = site.start(exit_when_done=True)
    node.join()
    assert isinstance(node.error, RunAborted)
    assert "hospital-b" in str(node.error)


def test_a_first_greeting_that_takes_long_does_not_set_the_clock_forward(site, script):
    """As of a coordinator that just started: sessions and exchanges would seem over by half of what it took."""
    script.before_hello = lambda: time.sleep(3 if script.hellos == 1 else 0)
    link = connect(load_settings(site.folder), threading.Event())
    link.client.close()
    assert script.hellos > 1
    assert -3000 < link.clock_ms <= 0


def test_a_clock_that_is_off_is_named(site, script):
    script.clock_ms = 20 * 60_000
    node = site.start()
    node.join()
    assert isinstance(node.error, CertificateError)
    assert "clock" in str(node.error)
    assert node.error.exit_code == 6


@pytest.mark.parametrize(
    ("field", "value", "match"), [("federation", "other", "federation"), ("protocol", 9, "protocol 9")]
)
def test_a_coordinator_of_another_federation_or_protocol(site, script, field, value, match):
    setattr(script, field, value)
    node = site.start()
    node.join()
    assert isinstance(node.error, RemoteProtocolError)
    assert match in str(node.error)


def test_loose_keys_do_not_start(site):
    (site.folder / "identity.key").chmod(0o640)
    node = site.start()
    node.join()
    assert isinstance(node.error, CertificateError)
    assert "0640" in str(node.error)
    (site.folder / "identity.key").chmod(0o600)
    (site.folder / "tls.key").chmod(0o644)
    node = site.start()
    node.join()
    assert isinstance(node.error, CertificateError)
    assert "0644" in str(node.error)


def test_a_second_daemon_is_told_so(site, script):
    node = site.start()
    node.until(lambda: script.hellos)
    second = site.start()
    second.join()
    assert isinstance(second.error, ConfigError)
    assert "another node daemon" in str(second.error)
    node.end()


def test_a_log_that_was_changed_stops_the_daemon(site, script, plan_of):
    script.offer(plan := plan_of())
    script.ask(plan)
    node = site.start()
    node.until(lambda: script.complete)
    node.until(lambda: kinds(site)[-1] == "acknowledged")
    node.end()
    path = site.folder / "store" / "releases.jsonl"
    path.write_bytes(path.read_bytes().replace(b"not audited", b"all is good"))
    node = site.start()
    node.join()
    assert isinstance(node.error, ReleaseLogError)
    assert "record 1" in str(node.error)


def test_nothing_listens_and_a_stop_is_prompt(site, script):
    text = (site.folder / "node.toml").read_text().replace(site.address, "localhost:9")
    (site.folder / "node.toml").write_text(text)
    node = site.start()
    node.until(lambda: "trying again" in node.text)
    start = time.monotonic()
    node.end(60)
    assert time.monotonic() - start < 60
    assert node.error is None


def test_a_stop_during_the_computation_keeps_nothing_half_done(site, script, plan_of):
    script.offer(plan := plan_of(settings={"local_steps": 1_000_000}))
    script.ask(plan)
    node = site.start()
    node.until(lambda: "computing" in node.text)
    time.sleep(0.3)
    start = time.monotonic()
    node.end(60)
    assert time.monotonic() - start < 60
    assert node.error is None
    assert kinds(site) == []


def test_a_deadline_ends_a_computation(site, script, plan_of):
    script.offer(plan := plan_of(settings={"local_steps": 1_000_000}))
    script.ask(plan)
    script.work[0].deadline_unix_ms -= 597_000
    node = site.start()
    node.until(lambda: "the deadline passed" in node.text)
    node.end()
    assert kinds(site) == []


def test_private_randomness_differs_from_the_plans(site, script, plan_of):
    script.offer(private := plan_of())
    script.ask(private)
    node = site.start()
    node.until(lambda: len(script.complete) == 1)
    first = script.complete.popitem()[1]
    script.offer(shared := plan_of(name="shared", randomness="plan"))
    node.until(lambda: shared.digest() in script.joined)
    script.ask(shared)
    node.until(lambda: len(script.complete) == 1)
    node.end()
    second = script.complete.popitem()[1]
    assert first != second


def test_nothing_private_in_the_output(site, script, plan_of):
    from fedsecure_node.settings import load_settings
    from fedsecure_node.store.store import Store

    script.offer(plan := plan_of())
    script.ask(plan)
    node = site.start()
    node.until(lambda: script.complete)
    node.end()
    with Store(load_settings(site.folder).store) as store:
        seed = store.runs.private_seed(plan.digest())
    assert str(seed) not in node.text
    assert str(seed).encode() not in b"".join(script.complete.values())
    assert "PRIVATE" not in node.text


def test_a_store_that_vanishes_stops_the_daemon_and_is_missed_at_the_next_start(site, script, plan_of):
    script.offer(plan := plan_of())
    script.ask(plan)
    node = site.start()
    node.until(lambda: script.complete)
    node.until(lambda: kinds(site)[-1] == "acknowledged")
    (site.folder / "store").rename(site.folder / "gone")
    node.join(30)
    assert isinstance(node.error, StoreError)
    assert "vanished while the node ran" in str(node.error)
    again = site.start()
    again.join(30)
    assert isinstance(again.error, ReleaseLogError)
    assert "record 3: is missing" in str(again.error)
    (site.folder / "gone").rename(site.folder / "store")
    third = site.start()
    third.until(lambda: "connected" in third.text)
    third.end()
