"""A cohort that a person no longer trusts: nothing is computed for it, and a session that is open gets nothing more."""

from __future__ import annotations

import pytest

from fedsecure.cli import run as command
from fedsecure.secagg.protocol.aborts import AbortCode

READY = ["release", "sending", "acknowledged"]


def untrust(site):
    assert command(["node", "cohort", "untrust", "hospitals", "--reason", "left", "--dir", str(site.folder)]) == 0


def kinds(site):
    return [r.kind for r in site.records()]


def test_a_run_whose_cohort_is_no_longer_trusted_is_left_before_anything_is_computed(site, script, cohort, masked_plan):
    untrust(site)
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    node.until(lambda: script.refusals)
    node.end()
    assert node.error is None, node.text
    assert "secure aggregation: the cohort is not the one that is pinned" in script.refusals[0][1]
    assert "cohort hospitals, of exactly the nodes" in node.text
    assert "is no longer trusted by node hospital-a" in node.text
    assert "computing" not in node.text
    assert kinds(site) == ["untrusted"]


@pytest.mark.parametrize(("leg", "left"), [(0, []), (1, []), (2, ["masked"]), (3, ["masked", "confirmed"])])
def test_a_session_that_is_open_gets_nothing_more(leg, left, site, script, cohort, masked_plan):
    """Taken back when the answer to ``leg`` arrives: the next one is refused, by name."""
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    script.sums.before = lambda at: untrust(site) if at == leg else None
    node = site.start()
    node.until(lambda: script.sums.session is not None and script.sums.session.aborted)
    script.sums.ask(plan, 1)
    node.until(lambda: script.refusals)
    node.end()
    assert script.sums.session.aborted.code is AbortCode.BAD_COHORT
    assert script.sums.session.sums is None
    assert "BAD_COHORT: cohort hospitals, of exactly the nodes" in node.text
    assert "the cohort is not the one that is pinned" in script.refusals[0][1]
    assert kinds(site) == [*READY, *left, "untrusted", "closed"]


def test_a_newer_version_that_is_pinned_in_mid_session_ends_it(site, script, cohort, masked_plan):
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    script.sums.before = lambda at: cohort.pin(cohort.signed(2)) if at == 1 else None
    node = site.start()
    node.until(lambda: script.sums.session is not None and script.sums.session.aborted)
    node.end()
    assert script.sums.session.aborted.code is AbortCode.BAD_COHORT
    assert "another manifest is pinned now than the session's" in node.text
    assert kinds(site) == READY
