"""Refusals in the log: bounded by source and minute, and none is forgotten, whatever ends the daemon."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.crypto.sealing import SealingKey
from fedsecure.errors import CertificateError, DataError, PolicyError
from fedsecure_node.cli.queries import _line
from fedsecure_node.log.queries import UNVERIFIED, entries
from fedsecure_node.serving import refusals
from fedsecure_node.serving.refusals import REFUSALS_A_MINUTE


def refuse(serving, times):
    """So many refusals of one analyst."""
    for _ in range(times):
        with pytest.raises(PolicyError):
            serving.ask(analyst="dr-moss")


def told(serving):
    """Refused queries as the log tells them: those with a record, and those that are counted."""
    return sum(bool(r.body["query"]) for r in serving.records) + sum(r.body["unlogged"] for r in serving.records)


@pytest.fixture
def later(monkeypatch):
    """Moves the clock of refusals on by so many milliseconds."""
    real = refusals.now_ms
    return lambda ms: monkeypatch.setattr(refusals, "now_ms", lambda: real() + ms)


def test_refusals_cannot_fill_the_disk(serving, later):
    refuse(serving, 9)
    assert [r.kind for r in serving.records] == ["prediction-refused"] * REFUSALS_A_MINUTE
    with pytest.raises(DataError):
        serving.ask(np.full((1, 1, 8, 8), np.nan, np.float32))  # another analyst has minutes of its own
    assert len(serving.records) == REFUSALS_A_MINUTE + 1
    later(61_000)
    refuse(serving, 1)
    assert serving.records[-1].body["unlogged"] == 9 - REFUSALS_A_MINUTE
    assert serving.node.store.refusals.all() == []


def test_unverified_senders_share_one_quota_and_take_none_of_an_analysts(serving):
    for n in range(30):
        asked, _ = serving.asked(signer="dr-moss", analyst="dr-weber")
        serving.answerer.answer(serving.relayed(asked, analyst_id=f"name-{n}" * 50), serving.link)
        serving.answerer.answer(serving.relayed(asked, public=SealingKey.generate().public), serving.link)
    assert len(serving.records) == REFUSALS_A_MINUTE
    assert all(r.body["verified"] is False and len(r.body["analyst"]) <= 64 for r in serving.records)
    assert serving.node.store.refusals.count(UNVERIFIED) == 60 - REFUSALS_A_MINUTE
    with pytest.raises(DataError):  # the real dr-weber's refusal has its own record
        serving.ask(np.full((1, 1, 8, 8), np.nan, np.float32))
    assert (serving.records[-1].body["verified"], serving.records[-1].body["analyst"]) == (True, "dr-weber")


def test_claims_of_any_length_make_short_records(serving):
    asked, _ = serving.asked()
    asked.statement.certificate = b"-----BEGIN CERTIFICATE-----" + b"A" * 200_000
    relayed = serving.relayed(asked, analyst_id="x\x1b" * 100_000)
    serving.answerer.answer(relayed, serving.link)
    (record,) = serving.records
    assert record.body["certificate"] == ""
    assert "\x1b" not in record.body["analyst"]
    assert serving.node.store.log_path.stat().st_size < 4096


def test_counts_survive_a_process_that_is_killed(serving, make_answerer):
    refuse(serving, 9)
    again = make_answerer()  # nothing of the first but what is on the disk
    again.answerer.settle(everything=True)
    assert told(again) == 9
    last = again.records[-1].body
    assert (last["analyst"], last["unlogged"], last["query"]) == ("dr-moss", 9 - REFUSALS_A_MINUTE, "")
    again.answerer.settle(everything=True)
    assert told(again) == 9
    refuse(again, 1)  # the minute goes on: counted, not recorded
    assert len(again.records) == REFUSALS_A_MINUTE + 1


def test_counts_are_recorded_when_their_minute_is_over(serving, later):
    refuse(serving, 5)
    serving.answerer.settle()
    assert len(serving.records) == REFUSALS_A_MINUTE
    later(60_001)
    serving.answerer.settle()
    assert told(serving) == 5


def test_the_list_of_queries_tells_counts_and_claims(serving):
    refuse(serving, 4)
    with pytest.raises(CertificateError):
        serving.ask(analyst="dr-gone")
    serving.answerer.settle(everything=True)
    lines = [_line(entry) for entry in entries(serving.records)]
    assert lines[-2].startswith("unverified (dr-gone): 0 records, toy, sealed, refused: certificate of a query")
    assert lines[-1] == "dr-moss: 1 more query refused: too many in a minute for records of their own"
