"""The release log: whatever is done to it after it was written is found, and a crash loses nothing that was
complete."""

from __future__ import annotations

import json
import os

import pytest

from fedsecure.crypto.signatures import generate_identity, load_identity
from fedsecure.errors import LocalProtocolError, ReleaseLogError
from fedsecure_node.cli.verification import verify_store
from fedsecure_node.log.chain import GENESIS
from fedsecure_node.log.decisions import decide, note
from fedsecure_node.log.releases import find_release, fold


def verify(node):
    return verify_store(node.settings.store, load_identity(node.settings.identity).public_bytes)


@pytest.fixture
def full(node, make_release):
    """Three releases with their events: eight records."""
    for round_ in (0, 1):
        release, _ = make_release(round_=round_)
        note(node.log, release.number, "sending")
        note(node.log, release.number, "acknowledged")
    release, _ = make_release("statistics", hold=True)
    assert release.state == "held"
    return node


def test_a_whole_log_verifies_and_names_the_key(full):
    found = verify(full)
    assert [r.kind for r in found.records] == [
        "release", "sending", "acknowledged", "release", "sending", "acknowledged", "release", "held",
    ]  # fmt: skip
    assert found.identity == load_identity(full.settings.identity).fingerprint
    assert [r.state for r in found.releases.values()] == ["acknowledged", "acknowledged", "held"]
    first = json.loads(full.store.log_path.read_bytes().split(b"\n")[0])["record"]
    assert first["prev"] == GENESIS
    assert first["seq"] == 1


def test_an_append_verifies_what_another_process_added_and_all_of_it_when_more_changed(
    full, reopened, make_release, monkeypatch
):
    """Between its own appends a daemon reads no old record; what a verb added in order is verified alone; any other
    hand in the file makes it verify the whole."""
    from fedsecure_node.log import known, releaselog

    scans, added = [], []
    real, real_scan = releaselog.verify_log, known.scan
    monkeypatch.setattr(releaselog, "verify_log", lambda *a: (scans.append(1), real(*a))[1])

    def count(*arguments):
        found = real_scan(*arguments)
        added.extend(r.seq for r in found.records)
        return found

    monkeypatch.setattr(known, "scan", count)
    daemon, verb = full.log, reopened()
    make_release(round_=3)
    scans.clear()
    daemon.append("refused", {"release": 7}, only_if=lambda releases: None)
    assert scans == []
    note(verb, 9, "sending")
    assert scans == [1]
    assert added == []
    note(daemon, 9, "acknowledged")  # the verb wrote: its record is verified, and counts
    assert (scans, added) == ([1], [11])
    path = full.store.log_path
    good = path.read_bytes()
    write_later(path, good[:200] + bytes([good[200] ^ 1]) + good[201:])
    with pytest.raises(ReleaseLogError):
        daemon.releases()
    assert scans == [1, 1]
    write_later(path, good)
    assert daemon.releases()[9].state == "acknowledged"
    old = full.store.head()
    make_release("statistics", 1)
    full.store.set_head(old)
    assert len(daemon.releases()) == 5  # one record beyond the head is what a crash leaves


def write_later(path, data):
    """As if at another time: some file systems tell times only to a few milliseconds."""
    before = path.stat().st_mtime_ns
    path.write_bytes(data)
    os.utime(path, ns=(before, before + 10**9))


def test_an_empty_log_verifies(node):
    assert verify(node).records == ()


def test_every_flipped_bit_of_a_sample_is_found(full):
    path = full.store.log_path
    good = path.read_bytes()
    for at in [*range(0, len(good), 97), len(good) - 1]:
        bad = bytearray(good)
        bad[at] ^= 1
        write_later(path, bytes(bad))
        with pytest.raises(ReleaseLogError):
            verify(full)
        with pytest.raises(ReleaseLogError):
            full.log.append("release", {}, only_if=lambda _: None)
    path.write_bytes(good)
    verify(full)


@pytest.mark.parametrize("gone", range(8))
def test_a_deleted_record_is_found(full, gone):
    lines = full.store.log_path.read_bytes().splitlines(keepends=True)
    full.store.log_path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    with pytest.raises(ReleaseLogError, match=f"record {gone + 1}"):
        verify(full)


def test_records_in_another_order_are_found(full):
    lines = full.store.log_path.read_bytes().splitlines(keepends=True)
    lines[2], lines[3] = lines[3], lines[2]
    full.store.log_path.write_bytes(b"".join(lines))
    with pytest.raises(ReleaseLogError, match="record 3"):
        verify(full)


@pytest.mark.parametrize("kept", range(8))
def test_records_cut_off_the_end_are_found_also_at_the_next_start(full, kept, reopened):
    lines = full.store.log_path.read_bytes().splitlines(keepends=True)
    full.store.log_path.write_bytes(b"".join(lines[:kept]))
    with pytest.raises(ReleaseLogError, match=rf"record 8: is missing: the log ends with record {kept}"):
        verify(full)
    with pytest.raises(ReleaseLogError):
        reopened().recover()


def test_a_deleted_log_is_found(full, reopened):
    full.store.log_path.unlink()
    with pytest.raises(ReleaseLogError, match="record 8: is missing"):
        verify(full)
    with pytest.raises(ReleaseLogError):
        reopened().recover()


def test_a_forged_record_by_another_key_is_found(full, tmp_path):
    other = generate_identity(tmp_path / "other.key")
    lines = full.store.log_path.read_bytes().splitlines()
    raw = json.loads(lines[-1])
    from fedsecure_node.log.chain import RECORD_LABEL, canonical

    raw["record"]["body"]["reason"] = "nothing to see"
    raw["signature"] = other.sign(RECORD_LABEL, canonical(raw["record"])).hex()
    full.store.log_path.write_bytes(b"\n".join([*lines[:-1], canonical(raw)]) + b"\n")
    with pytest.raises(ReleaseLogError, match="record 8: its signature"):
        verify(full)
    with pytest.raises(ReleaseLogError, match="record 1: its signature"):
        verify_store(full.settings.store, other.public_bytes)


def test_a_database_put_back_to_an_older_copy_is_found(full, make_release):
    old = full.store.head()
    release, _ = make_release("statistics", 1)
    note(full.log, release.number, "sending")
    full.store.set_head(old)
    with pytest.raises(ReleaseLogError, match="older than the log"):
        verify(full)


def test_a_changed_head_is_found(full):
    from dataclasses import replace

    full.store.set_head(replace(full.store.head(), seq=7))
    with pytest.raises(ReleaseLogError, match="head"):
        verify(full)
    full.store.database.write("UPDATE meta SET value = 'x' WHERE key = 'log_head'")
    with pytest.raises(ReleaseLogError, match="malformed"):
        verify(full)


def test_released_bytes_that_changed_or_are_gone_are_found(full):
    path = next((full.settings.store / "releases").glob("*.bin"))
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(ReleaseLogError, match="is not what the log says: its bytes"):
        verify(full)
    path.unlink()
    with pytest.raises(ReleaseLogError, match="cannot be read"):
        verify(full)


def test_a_policy_that_changed_or_is_gone_is_found(full):
    (path,) = (full.settings.store / "policies").glob("*.toml")
    good = path.read_bytes()
    path.write_bytes(good + b"# allows more")
    with pytest.raises(ReleaseLogError, match="release 1: .* is not what the log says: the policy"):
        verify(full)
    path.unlink()
    with pytest.raises(ReleaseLogError, match="release 1: the policy it was checked against cannot be read"):
        verify(full)


def test_a_torn_last_line_is_repaired_and_kept_aside(full, reopened, make_release):
    path = full.store.log_path
    good = path.read_bytes()
    lines = good.splitlines(keepends=True)
    torn = lines[-1][: len(lines[-1]) // 2]
    path.write_bytes(good + torn)
    with pytest.raises(ReleaseLogError, match="no complete record"):
        verify(full)
    assert "moved to releases.jsonl.torn-9" in reopened().recover()
    assert path.read_bytes() == good
    assert path.with_name("releases.jsonl.torn-9").read_bytes() == torn
    make_release("statistics", 1)
    assert len(verify(full).records) == 9


def test_a_torn_line_that_was_a_complete_record_once_is_not_repaired_away(full, reopened):
    path = full.store.log_path
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ReleaseLogError, match="record 8: is missing"):
        reopened().recover()


def test_a_complete_record_without_its_newline_is_completed_not_dropped(full, reopened):
    path = full.store.log_path
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    assert "record 8 was completed" in reopened().recover()
    assert path.read_bytes() == good
    assert len(verify(full).records) == 8


def test_a_record_written_just_before_a_crash_is_kept(full, make_release, reopened):
    old = full.store.head()
    make_release("statistics", 1)
    full.store.set_head(old)
    assert len(verify(full).records) == 9
    assert "the head now names record 9" in reopened().recover()
    assert full.store.head().seq == 9


@pytest.mark.parametrize("added", [b"x", b"{}", b'{"record":{"a":1}}', b"\x00" * 20])
def test_foreign_bytes_at_the_end_are_a_fault_not_a_torn_record(full, reopened, added):
    with full.store.log_path.open("ab") as file:
        file.write(added)
    with pytest.raises(ReleaseLogError, match="not the beginning of a record"):
        reopened().recover()


def test_only_a_held_release_can_be_decided_and_only_once(full):
    held = find_release(fold(full.log.records()), "7")
    with pytest.raises(LocalProtocolError, match="release 1: is sent"):
        decide(full.log, 1, release=False, by="ada", reason="late")
    decide(full.log, held.number, release=False, by="ada", reason="a face can be seen")
    with pytest.raises(LocalProtocolError, match="refused by a person"):
        decide(full.log, held.number, release=True, by="bob", reason="")
    with pytest.raises(LocalProtocolError):
        note(full.log, held.number, "sending")
    last = verify(full).records[-1]
    assert (last.kind, last.body["by"], last.body["reason"]) == ("refused", "ada", "a face can be seen")


def test_a_record_tells_what_where_and_under_which_policy(full):
    import hashlib

    release = find_release(fold(full.log.records()), "1")
    body = release.body
    assert body["class_counts"] == {"normal": 2, "pneumonia": 2, "<b>odd & name</b>": 0}
    assert body["destination"] == {"address": "localhost:1", "certificate": "SHA256:aa"}
    assert body["policy"] == hashlib.sha256(full.settings.policy.read_bytes()).hexdigest()
    assert body["guarantee"] == {"label": "none"}
    assert body["audit"] == {"result": "not audited", "reason": "", "then": "leave"}
    images = next(t for t in body["tensors"] if t["name"] == "images")
    assert (images["half"], images["shape"], images["bytes"]) == ("released", [4, 1, 8, 8], 1024)
    assert images["min"] < images["max"]
    assert any("revealed to the coordinator as it is" in line for line in body["learns"])
    statistics = find_release(fold(full.log.records()), "7")
    assert all("not masked" in line for line in statistics.body["learns"])
    assert find_release(fold(full.log.records()), release.payload[:8]).payload == release.payload


def test_log_and_head_hold_no_private_seed(full):
    seed = str(full.store.runs.private_seed(full.plan.digest()))
    assert seed not in full.store.log_path.read_text()
    assert seed not in repr(full.store.runs.find(full.plan.digest()))


def test_a_held_release_tells_until_when_it_can_be_decided(node):
    from fedsecure.tensors import Tensors
    from fedsecure.wire.codec import encode_contribution
    from fedsecure_node.store.store import iso_time

    key, payload = node.key(), encode_contribution(node.contribution())
    gate = node.gate_with(hold=True)
    contribution = gate.check(node.plan, node.method, key, payload, node.data.counts(), node.current().policy)
    done = node.store.runs.finish(key, broadcast="b" * 64, payload=payload, before="", local=Tensors(), now_ms=3)
    until = iso_time(1_800_000_000_000)
    gate.log(
        node.plan, node.method, done, payload, contribution, node.current(), node.destination, until=until
    )  # fmt: skip
    held = fold(node.log.records())[1]
    assert held.words() == "held: waits for a person, until 2027-01-15T08:00:00Z"
    assert held.to_json()["decide_until"] == until
    decide(node.log, 1, release=True, by="ada", reason="")
    assert fold(node.log.records())[1].decide_until == ""
    assert iso_time(2**63) == "9999-12-31T23:59:59Z"
