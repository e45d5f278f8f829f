"""A manifest that is added while the daemon runs is in its log."""

from __future__ import annotations

import logging

import pytest

from fedsecure.secagg.machines.session import ephemeral_cohort
from fedsecure_coordinator.cohorts.arrivals import Arrivals
from fedsecure_coordinator.cohorts.manifests import Cohorts


@pytest.fixture
def cohorts(tmp_path):
    return Cohorts(tmp_path / "cohorts")


def added(cohorts, *names):
    manifest, _ = ephemeral_cohort("heart-study", names)
    cohorts.add(manifest, federation="heart-study")
    return manifest


def test_what_is_added_is_told_once(cohorts, caplog):
    caplog.set_level(logging.INFO, "fedsecure.coordinator")
    arrivals = Arrivals(cohorts)
    arrivals.tell()
    manifest = added(cohorts, "a", "b", "c")
    arrivals.tell()
    arrivals.tell()
    (record,) = caplog.records
    digest = manifest.digest.hex()
    assert record.getMessage() == f"cohort {manifest.cohort}, version 1 ({digest[:12]}) was added: a, b, c"
    about = {"event": "cohort", "cohort": manifest.cohort, "version": 1, "digest": digest}
    assert record.fields == about
    assert record.levelname == "INFO"


def test_what_was_there_is_no_news(cohorts, caplog):
    caplog.set_level(logging.INFO, "fedsecure.coordinator")
    added(cohorts, "a", "b", "c")
    Arrivals(cohorts).tell()
    assert caplog.records == []


def test_a_damaged_one_is_a_warning_and_stops_nothing(cohorts, tmp_path, caplog):
    arrivals = Arrivals(cohorts)
    (tmp_path / "cohorts").mkdir(mode=0o700)
    (tmp_path / "cohorts" / f"{'0' * 64}.json").write_text("{}")
    arrivals.tell()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "cannot be used" in record.getMessage()


def test_the_preparer_looks(open_office, cohorts, caplog, monkeypatch):
    office = open_office()
    caplog.set_level(logging.INFO, "fedsecure.coordinator")
    added(cohorts, "a", "b", "c")
    monkeypatch.setattr(office.preparer._stop, "wait", lambda seconds: office.preparer._stop.set())
    office.preparer.prepare()
    assert "was added: a, b, c" in caplog.text
