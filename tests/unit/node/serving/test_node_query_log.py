"""Answers in the release log: verified with the rest, listed for people and machines, and counted in constant time."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime

import pytest

from fedsecure.cli import run
from fedsecure.crypto.signatures import load_identity, public_identity_pem
from fedsecure.errors import PolicyError, ReleaseLogError
from fedsecure_node.cli.first_steps import init_node
from fedsecure_node.cli.verification import verify_store
from fedsecure_node.log.chain import Record
from fedsecure_node.log.queries import HOUR_MS, QueryTally, entries
from fedsecure_node.log.releases import fold


def verify(serving):
    return verify_store(serving.node.settings.store, load_identity(serving.node.settings.identity).public_bytes)


@pytest.fixture
def asked(make_release, request):
    """A release, an answer and a refusal in one log."""
    make_release()
    serving = request.getfixturevalue("serving")
    serving.ask()
    with pytest.raises(PolicyError):
        serving.ask(analyst="dr-moss")
    return serving


def test_answers_are_part_of_the_verified_log_and_no_releases(asked):
    found = verify(asked)
    assert [r.kind for r in found.records] == ["release", "prediction", "prediction-refused"]
    assert found.answers == 1
    assert list(found.releases) == [1]
    assert list(fold(asked.records)) == [1]


@pytest.mark.parametrize("at", [1, 2])
def test_a_changed_or_missing_answer_is_found(asked, at):
    path = asked.node.store.log_path
    lines = path.read_bytes().splitlines(keepends=True)
    other = b"dr-weber" if at == 1 else b"dr-moss"
    path.write_bytes(b"".join([*lines[:at], lines[at].replace(other, b"dr-" + other[3:][::-1]), *lines[at + 1 :]]))
    with pytest.raises(ReleaseLogError, match=f"record {at + 1}"):
        verify(asked)
    path.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
    with pytest.raises(ReleaseLogError):
        verify(asked)


def test_the_policy_of_an_answer_is_kept_and_checked(asked):
    asked.node.settings.policy.write_text(asked.node.settings.policy.read_text() + "\n# another day\n")
    asked.ask()
    number = asked.records[-1].seq
    kept = asked.node.settings.store / "policies" / f"{asked.records[-1].body['policy']}.toml"
    verify(asked)
    kept.write_bytes(kept.read_bytes() + b"#")
    with pytest.raises(ReleaseLogError, match=f"query {number}: .*the policy it was checked against"):
        verify(asked)


@pytest.fixture
def cli(asked, tmp_path, capsys):
    folder, node = tmp_path / "site", asked.node
    init_node(folder, node="hospital-a", federation="heart-study", coordinator="localhost:1")
    shutil.copy2(node.settings.identity, folder / "identity.key")
    shutil.copy2(node.settings.identity.with_suffix(".head"), folder / "identity.head")
    (folder / "identity.pub").write_bytes(public_identity_pem(load_identity(folder / "identity.key").public_bytes))
    shutil.copy2(node.settings.policy, folder / "policy.toml")
    node.store.close()
    shutil.copytree(node.settings.store, folder / "store")

    def call(*arguments):
        assert run(["node", *arguments, "--dir", str(folder)]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    return call


def test_the_verbs_tell_of_queries(cli):
    answered, refused = cli("queries").splitlines()
    assert "dr-weber: 2 records, toy, sealed, answered, guarantee none" in answered
    assert "dr-moss: 2 records, toy, sealed, refused: prediction.analysts" in refused
    first, second = json.loads(cli("queries", "--json"))["queries"]
    assert (first["record"], first["answered"], first["analyst"], first["records"]) == (2, True, "dr-weber", 2)
    assert (second["answered"], second["rule"], second["unlogged"]) == (False, "prediction.analysts", 0)
    assert cli("releases").splitlines()[-1] == "besides, 1 answer to a query left: fedsecure node queries"
    listed = json.loads(cli("releases", "--json"))
    assert (len(listed["releases"]), listed["answers"]) == (1, 1)
    assert "3 records of 1 release and 1 answer to queries: whole" in cli("verify-log")
    assert json.loads(cli("verify-log", "--json"))["answers"] == 1


def record(seq, at_ms, kind="prediction", analyst="a", records=1):
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    body = {"analyst": analyst, "records": records, "query": f"q{seq}"}
    return Record(seq, kind, at, "n", "h", body)


def test_the_tally_forgets_what_is_older_than_an_hour():
    start = 1_700_000_000_000
    tally = QueryTally.of(
        [record(1, start, records=5), record(2, start + 1000, analyst="b", records=7), record(3, start + 2000)]
    )
    assert (tally.answered("a", start + 2000), tally.answered("b", start + 2000)) == (6, 7)
    assert tally.was_answered("q1")
    assert tally.answered("a", start + HOUR_MS - 1) == 6
    assert tally.answered("a", start + HOUR_MS) == 1
    assert not tally.was_answered("q1")
    assert tally.answered("b", start + HOUR_MS + 1000) == 0
    tally.add(record(4, start, kind="release"))
    assert tally.answered("c", start) == 0


def test_the_tally_counts_refusals_of_a_minute():
    start = 1_700_000_000_000
    refused = [record(n, start + n * 1000, kind="prediction-refused") for n in range(3)]
    tally = QueryTally.of(refused)
    assert tally.refusals("a", start + 2000) == 3
    assert tally.refusals("a", start + 60_500) == 2
    assert tally.refusals("b", start) == 0
    assert tally.answered("a", start) == 0


def test_a_query_costs_the_same_after_many_others():
    """100 000 answers in the log, a thousand of them in the last hour: counting takes microseconds."""
    start = 1_700_000_000_000
    count = 100_000
    tally = QueryTally()
    for seq in range(count):
        tally.add(record(seq, start + seq * 3_600))  # one every 3.6 s: a thousand an hour
    now = start + (count - 1) * 3_600
    begin = time.process_time()
    for _ in range(1000):
        assert tally.answered("a", now) == 1000
        assert not tally.was_answered("other")
    assert time.process_time() - begin < 2.0  # a fold over the log would take minutes


def test_an_answer_reads_no_old_record_of_the_log(serving, monkeypatch):
    from fedsecure_node.log import releaselog

    serving.ask()
    scans = []
    real = releaselog.verify_log
    monkeypatch.setattr(releaselog, "verify_log", lambda *a: (scans.append(1), real(*a))[1])
    serving.ask()
    with pytest.raises(PolicyError):
        serving.ask(analyst="dr-moss")
    serving.ask()
    assert scans == []
    assert [entry.answered for entry in entries(serving.records)] == [True, True, False, True]


def test_threads_that_read_the_log_at_once_take_in_what_a_verb_added_once(serving, reopened, make_release):
    """Both hold the lock for reading; the state of the release must follow the verb's record by one step alone."""
    import threading

    from fedsecure_node.log.decisions import decide

    faults = []
    for round_ in (3, 4, 5, 6):
        release, _ = make_release(round_=round_, hold=True, gate=None)
        serving.log.releases()
        decide(reopened(), release.number, release=True, by="a person", reason="")
        ready = threading.Barrier(4, timeout=60)

        def read(number=release.number, ready=ready):
            ready.wait()
            try:
                assert serving.log.releases()[number].state == "cleared"
                serving.log.queries()
            except Exception as error:
                faults.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert faults == []
