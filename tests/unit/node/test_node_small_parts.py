"""Reports, reasons, retries, and text from elsewhere."""

from __future__ import annotations

import io
import json
import threading

import pytest

from fedsecure.errors import (
    AuditError,
    ConfigError,
    DataError,
    LocalProtocolError,
    PolicyError,
    PrivacyBudgetExceeded,
    RemoteProtocolError,
)
from fedsecure.method import Cancelled
from fedsecure.privacy.labels import NONE, DifferentialPrivacy, Heuristic, guarantee_words
from fedsecure_node.link.transfer import FIRST_PAUSE_S, LONGEST_PAUSE_S, Backoff
from fedsecure_node.plans.describe import describe
from fedsecure_node.plans.institution import read_policy
from fedsecure_node.plans.reasons import public_reason
from fedsecure_node.progress import JsonReporter, PlainReporter, RichReporter, make_reporter
from fedsecure_node.text import printable


def test_pauses_grow_to_a_bound_and_stop_at_once():
    stop = threading.Event()
    pauses = Backoff(stop).pauses()
    seen = [next(pauses) for _ in range(12)]
    assert FIRST_PAUSE_S / 2 <= seen[0] <= FIRST_PAUSE_S
    assert all(LONGEST_PAUSE_S / 2 <= p <= LONGEST_PAUSE_S for p in seen[-3:])
    stop.set()
    with pytest.raises(Cancelled):
        Backoff(stop).wait()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DataError("tensor images: values 0..93 outside 0..20"), "tensor images is not what the plan's schema allows"),
        (
            DataError("training diverged: tensor model.w: values 93 outside 0..20"),
            "training diverged: tensor model.w is not finite or out of the schema's range",
        ),
        (DataError("/data/mueller/17.png: damaged"), "the institution's records cannot take part"),
        (PolicyError("release.max_bytes: this release has 7 bytes"), "forbids it (rule release.max_bytes)"),
        (
            PolicyError("policy refuses plan x: plans.max_rounds: 5 (allowed: <= 3); plans.min_nodes: 2"),
            "the institution's policy forbids it (rule plans.max_rounds, plans.min_nodes)",
        ),
        (PolicyError("plan x: is not approved"), "the institution does not allow it"),
        (PolicyError("/etc/policy.toml: no policy"), "the institution does not allow it"),
        (PrivacyBudgetExceeded("epsilon 3 of 2"), "does not pay for it"),
        (AuditError("advantage 0.4"), "the institution withholds its release"),
        (RemoteProtocolError("broadcast: tensor w: missing"), "broadcast: tensor w: missing"),
        (ConfigError("/etc/secret"), "failed at the node (ConfigError)"),
        (ValueError("patient 12"), "failed at the node (a fault)"),
        (
            LocalProtocolError("data set 0a12bc34de56: another daemon (process 93) on this machine computes on it"),
            "another daemon of the institution works on its records; this one takes no part",
        ),
        (LocalProtocolError("data set 0a12bc34de56 is 12"), "failed at the node (LocalProtocolError)"),
    ],
)
def test_what_a_coordinator_is_told(error, told):
    reason = public_reason(error, "round 1")
    assert reason.startswith("round 1: ")
    assert reason.endswith(told)
    assert not any(word in reason for word in ("93", "mueller", "secret", "12", "0.4", "epsilon"))


def test_reports_for_people_and_machines():
    out = io.StringIO()
    plain = make_reporter("plain", out)
    assert isinstance(plain, PlainReporter)
    plain.say("x", "evil \x1b[2J\nline")
    for done in range(101):
        plain.progress("training", done, 100)
    lines = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    assert len(lines) == 5
    out = io.StringIO()
    machine = make_reporter("json", out)
    assert isinstance(machine, JsonReporter)
    machine.say("sent", "größe\n", bytes=3)
    machine.progress("training", 50, 100)
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert (first["event"], first["bytes"], first["message"]) == ("sent", 3, "größe\n")
    assert (second["done"], second["of"]) == (50, 100)


def test_a_terminal_gets_a_live_view():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    live = make_reporter("auto", out)
    assert isinstance(live, RichReporter)
    live.progress("[red]training", 1, 4)
    live.progress("[red]training", 2, 4)
    live.say("sent", "[bold]not markup[/bold]")
    live.progress("another", 1, 4)
    live.close()
    assert "[bold]not markup[/bold]" in out.getvalue()
    assert isinstance(make_reporter("auto", io.StringIO()), PlainReporter)


def test_labels_say_what_is_true():
    assert NONE.to_json() == {"label": "none"}
    assert "nothing is proven" in guarantee_words(NONE.to_json())
    words = guarantee_words(DifferentialPrivacy(1.5, 1e-5, "record").to_json())
    assert "(1.5, 1e-05) differential privacy for each record" in words
    assert "differential privacy" not in guarantee_words(Heuristic("a floor of 10", "audit page, 7").to_json())
    assert "proves nothing" in guarantee_words(Heuristic("a floor of 10", "audit page, 7").to_json())


def test_names_from_a_coordinator_cannot_move_the_cursor(node, plan_of):
    from fedsecure.methods import build_method

    assert printable("a\x1b[2Jb\u202ec\n") == "a [2Jb c "
    task = {"kind": "image", "classes": ["ok", "\x1b]0;x\x07\nNO rule"], "shape": [1, 8, 8]}
    plan = plan_of(task=task)
    assert all(line.isprintable() for line in describe(plan, None, build_method(plan)))


def test_a_policy_that_everybody_can_write_allows_nothing(node):
    node.settings.policy.chmod(0o666)
    with pytest.raises(ConfigError, match="everybody can write"):
        read_policy(node.settings.policy)
