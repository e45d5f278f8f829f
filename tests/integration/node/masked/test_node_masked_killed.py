"""The node's process is killed in mid-session: what it gave it knows from its store, and gives no more."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from attack_steps import kinds

from fedsecure.secagg.protocol.aborts import AbortCode

sys.path.insert(0, str(Path(__file__).parents[3]))
from forked_nodes import ForkedNode


@pytest.fixture
def process(site):
    """Starts ``fedsecure node run``; whatever still runs at the end is killed."""
    started = []

    def start():
        started.append(ForkedNode(site.folder, site.folder / "out.txt"))
        return started[-1]

    yield start
    for one in started:
        if one.poll() is None:
            one.kill()
        one.wait(60)


def until(condition, site, seconds=150):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, (site.folder / "out.txt").read_text()
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_killed_in_mid_session(site, script, cohort, masked_plan, session_of, process, at):
    """kill -9 as the answer to a leg arrives. The new process has no session, and a fresh one completes; unless its
    shares may be on their way, which it knows from its store: then never."""
    running = []

    def kill(leg):
        if leg == at and len(running) == 1:
            running[0].kill()
            running[0].wait(60)
            running.append(process())

    script.sums.before = kill
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    running.append(process())
    until(lambda: len(running) == 2, site)
    first = script.sums.session
    if at != 4:
        until(lambda: first.aborted, site)
        assert first.aborted.code is AbortCode.BAD_TRANSCRIPT
        assert first.sums is None
    second = session_of(cohort, plan, first.work, 1)
    script.sums.sessions.append(second)
    until(lambda: second.aborted or second.sums, site)
    running[-1].terminate()
    assert running[-1].wait(60) == 0
    if at == 4:
        assert second.aborted.code is AbortCode.ALREADY_RELEASED
        assert second.answers == []
    else:
        assert second.sums is not None
    assert "Traceback" not in (site.folder / "out.txt").read_text()
    assert kinds(site).count("unmasked") == 1
