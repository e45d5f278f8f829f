"""The example file, settings, run names, model cards, progress lines."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import tomllib
from pathlib import Path

import pytest
from rich.console import Console
from safetensors import safe_open

from fedsecure.config import validate
from fedsecure.errors import ConfigError
from fedsecure.methods import build_method
from fedsecure.models import state_of
from fedsecure.tensors import Tensors
from fedsecure_coordinator.runs.notices import Notice
from fedsecure_coordinator.settings import CoordinatorSettings, load_settings, split_listen
from fedsecure_coordinator.setup import example, write_settings
from fedsecure_coordinator.store.journal import RunRow
from fedsecure_coordinator.views.card import LOADING, ROUTING, model_card
from fedsecure_coordinator.views.export import export_run
from fedsecure_coordinator.views.progress import Progress, runs_table
from fedsecure_coordinator.views.runs import find_run, run_view
from fedsecure_coordinator.views.status import status_lines

PLAN_TASK = {"kind": "image", "classes": ["a", "ö"], "shape": [1, 8, 8], "mean": [0.25], "std": [0.75]}
ROOT = Path(__file__).resolve().parents[3]


def test_the_example_is_one_file_and_says_the_defaults():
    assert (ROOT / "coordinator" / "coordinator.example.toml").read_text(encoding="utf-8") == example()
    raw = tomllib.loads(example())
    bare = {k: raw[k] for k in ("format", "federation", "listen")}
    assert validate(CoordinatorSettings, raw, "example") == validate(CoordinatorSettings, bare, "bare")


def test_paths_are_taken_from_the_files_folder(tmp_path):
    write_settings(tmp_path, federation="f.example", listen="[::1]:8443")
    with (tmp_path / "coordinator.toml").open("a") as file:
        file.write('[evaluation]\nkind = "npz"\npath = "test.npz"\n')
    settings = load_settings(tmp_path)
    assert (settings.federation, settings.listen) == ("f.example", "[::1]:8443")
    assert settings.store == tmp_path / "store"
    assert settings.tls.crl is None
    assert settings.tls.crl_place == tmp_path / "crl.pem"
    (tmp_path / "crl.pem").write_text("")
    assert load_settings(tmp_path).tls.crl == tmp_path / "crl.pem"
    assert settings.evaluation.path == tmp_path / "test.npz"
    with pytest.raises(ConfigError, match="cannot be written"):
        write_settings(tmp_path, federation="f.example", listen="h:1")


def test_listen():
    assert split_listen("0.0.0.0:8443") == ("0.0.0.0", 8443)
    assert split_listen("[::]:0") == ("::", 0)
    for wrong in ("8443", ":8443", "::1:8443", "h:", "h:x", "h:70000", "h:٣"):
        with pytest.raises(ValueError, match="host:port|port"):
            split_listen(wrong)


def finished(office, toy, **changes):
    digest = office.gather(toy.plan(**changes))
    for round_ in range(2):
        for node in "abc":
            office.send(digest, node, round_=round_)
        office.work()
    return digest


def test_the_card_says_what_happened(open_office, toy, tmp_path):
    office = open_office(evaluate=lambda plan, model: {"accuracy": 0.75, "accuracy.a": 0.5})
    digest = finished(office, toy, task={"kind": "image", "classes": ["a|b", "<c>"], "shape": [1, 8, 8]})
    row = find_run(office.journal, digest)
    files = export_run(office.journal, office.blobs, row, tmp_path / "out", lambda plan: toy.method())
    assert Tensors.from_bytes(files["model"].read_bytes()) == Tensors.from_bytes(office.blobs.get(row.server))
    card = files["card"].read_text(encoding="utf-8")
    for text in (digest, "COMPLETED", "`none`", "a\\|b, &lt;c>", "0.75", "a, b, c", "preset protective"):
        assert text in card
    history = json.loads(files["history"].read_text())["history"]
    assert [r["metrics"]["accuracy"] for r in history] == [0.75, 0.75]
    assert all(r["bytes_up"]["a"] > 0 for r in history)


def test_no_name_on_a_card_can_steer_a_terminal(open_office, toy):
    names = ["a\x1b[2J\x9b1m", "b\u202ec\u200b", "d\x00\u2028e\nf"]
    office = open_office(evaluate=lambda plan, model: {"accuracy": 0.5, f"accuracy.{names[1]}": 1.0})
    plan = toy.plan(task={"kind": "image", "classes": names, "shape": [1, 8, 8]})
    digest = finished(office, toy, task={"kind": "image", "classes": names, "shape": [1, 8, 8]})
    view = {**run_view(office.journal, find_run(office.journal, digest)), "reason": "off\x1b]0;x\x07"}
    card = model_card(plan, view, Tensors({}))
    assert all(line.isprintable() for line in card.split("\n"))
    assert "b c" in card
    assert "off ]0;x" in card


def test_an_exported_model_says_what_it_is_and_loads_as_the_card_says(open_office, toy, tmp_path, monkeypatch):
    plan = toy.plan(model={"name": "mlp", "hidden": [8, 4]}, task=PLAN_TASK)
    office = open_office(build_method(plan))
    row = find_run(office.journal, office.submit(plan))
    files = export_run(office.journal, office.blobs, row, tmp_path, build_method)
    data = files["model"].read_bytes()
    assert data == export_run(office.journal, office.blobs, row, tmp_path, build_method)["model"].read_bytes()
    with safe_open(files["model"], framework="numpy") as opened:
        said = opened.metadata()
        assert set(opened.keys()) == set(Tensors.from_bytes(data))
    assert (said["plan"], said["method"], json.loads(said["classes"])) == (row.digest, "fedavg", ["a", "ö"])
    assert json.loads(said["model"]) == {"name": "mlp", "hidden": [8, 4]}
    card = files["card"].read_text(encoding="utf-8")
    assert "mlp, hidden \\[8, 4]; " in card
    assert "mean \\[0.25], std \\[0.75]" in card
    assert f"```python\n{LOADING}```" in card
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    exec(compile(LOADING, "card", "exec"), space)
    assert set(space["names"]) <= {"a", "ö"}
    assert state_of(space["network"]) == Tensors.from_bytes(data)


def test_a_routed_model_says_what_it_lacks_and_routes_as_the_card_says(open_office, toy, tmp_path, monkeypatch):
    method = {"name": "fedspm", "components": 2, "router": {"name": "mlp", "hidden": [4]}}
    plan = toy.plan(model={"name": "mlp", "hidden": [4]}, method=method, task=PLAN_TASK)
    office = open_office(build_method(plan))
    row = find_run(office.journal, office.submit(plan))
    card = export_run(office.journal, office.blobs, row, tmp_path, build_method)["card"].read_text(encoding="utf-8")
    assert "heads that never left it" in card
    assert "`none`: nodes send the shared parameters and keep their heads; no noise is added" in card
    assert f"```python\n{ROUTING}```" in card
    assert LOADING not in card
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    exec(compile(ROUTING, "card", "exec"), space)
    assert space["scores"].shape == (2, 3)
    assert set(space["names"]) <= {"a", "b", "c"}


def test_the_columns_are_explained(open_office, toy):
    office = open_office(evaluate=lambda plan, model: {"accuracy": 0.5, "accuracy.a": 1.0, "server_accuracy": 1.0})
    digest = finished(office, toy)
    card = model_card(toy.plan(), run_view(office.journal, find_run(office.journal, digest)), Tensors({}))
    assert "* server_accuracy: accuracy on the condensed data itself" in card
    assert "is no result" in card
    assert "* accuracy.CLASS:" in card


def test_status_says_that_it_aggregates(open_office, toy, tmp_path):
    office = open_office()
    digest = office.gather(toy.plan())
    view = run_view(office.journal, find_run(office.journal, digest))
    lines = lambda v: "\n".join(status_lines({"federation": "f", "listen": "l", "daemon": "d", "runs": [v]}))  # noqa: E731
    assert "one: due from a, b, c until 1970-" in lines(view)
    for node in "abc":
        office.send(digest, node)
    assert "one: aggregating 3 contributions" in lines(run_view(office.journal, find_run(office.journal, digest)))


def test_logs_count_rounds_from_1(open_office, toy):
    office = open_office()
    digest = office.gather(toy.plan())
    for node in "abc":
        office.send(digest, node)
    office.work()
    again = open_office()
    again.preparer.take_up()
    out = io.StringIO()
    progress = Progress(out, "json", list)
    for notice in (*office.notices, *again.notices):
        progress.notice(notice)
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [r["round"] for r in records if r["event"] == "exchange"] == [1, 2]
    assert [r["attempt"] for r in records if r["event"] == "exchange"] == [1, 1]
    assert next(r["round"] for r in records if r["event"] == "round") == 1
    assert records[-1]["message"].endswith("resumed: round 2, exchange one, attempt 1 is open")


def test_the_card_of_an_aborted_run_names_reason_and_stragglers(open_office, toy):
    office = open_office()
    digest = office.gather(toy.plan(rounds=3))
    office.send(digest, "a")
    office.send(digest, "b")
    office.clock.now += 30_001
    office.registry.pass_deadlines()
    office.work()
    office.registry.take_abort_requests()
    office.journal.request_abort(digest, "enough")
    office.registry.take_abort_requests()
    row = find_run(office.journal, digest)
    card = model_card(toy.plan(rounds=3), run_view(office.journal, row), Tensors({}))
    assert "ABORTED: operator: enough" in card
    assert "| stragglers | c |" in card


def test_runs_are_found_by_digest_prefix_and_name(open_office, toy):
    office = open_office()
    first, second = office.submit(toy.plan()), office.submit(toy.plan(seed=6))
    assert find_run(office.journal, first).digest == first
    assert find_run(office.journal, second[:10].upper()).digest == second
    with pytest.raises(ConfigError, match="run 'sum': names 2 runs"):
        find_run(office.journal, "sum")
    for absent in ("", "zzz"):
        with pytest.raises(ConfigError, match="no such run"):
            find_run(office.journal, absent)
    office.submit(toy.plan(name="other"))
    assert find_run(office.journal, "other").name == "other"


def test_no_model_yet_is_said(open_office, toy, tmp_path):
    office = open_office()
    plan = toy.plan()
    office.preparer.take_up()
    office.journal.add_run(RunRow(plan.digest(), plan.name, plan.canonical(), 1))
    row = find_run(office.journal, "sum")
    with pytest.raises(ConfigError, match="has no model: it has not begun"):
        export_run(office.journal, office.blobs, row, tmp_path, lambda plan: toy.method())


def test_every_notice_has_words_in_text_and_json(open_office, toy):
    office = open_office(evaluate=lambda plan, model: {"loss2": float("nan")})
    finished(office, toy)
    office.desk.refuse("a", office.gather(toy.plan(name="b")), "no")
    text, lines = io.StringIO(), io.StringIO()
    plain, as_json = Progress(text, "text", list), Progress(lines, "json", list)
    for notice in office.notices:
        plain.notice(notice)
        as_json.notice(notice)
    assert "round 1, one: waiting for a, b, c" in text.getvalue()
    assert "loss2 not finite" in text.getvalue()
    assert "takes no part: no" in text.getvalue()
    records = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert {"opened", "joined", "exchange", "contribution", "aggregating", "round", "completed", "left"} <= {
        r["event"] for r in records
    }
    assert len(text.getvalue().splitlines()) == len(office.notices)
    plain.notice(Notice("d" * 64, "n", "unheard-of", {}))
    assert text.getvalue().endswith("n (dddddddddddd): unheard-of\n")


def test_the_live_table_shows_every_state(open_office, toy):
    office = open_office(evaluate=lambda plan, model: {"accuracy": 0.75})
    finished(office, toy)
    running = office.gather(toy.plan(name="running"))
    office.send(running, "a")
    out = io.StringIO()
    views = [run_view(office.journal, row) for row in office.journal.runs()]
    Console(file=out, width=200).print(runs_table(views))
    assert "COMPLETED" in out.getvalue()
    assert "accuracy 0.75" in out.getvalue()
    assert "EXCHANGE one" in out.getvalue()
    assert "1/3" in out.getvalue()


def test_a_plan_of_another_version_is_shown_and_stops_nobody(open_office, toy):
    office = open_office()
    raw = json.loads(toy.plan().canonical())
    canonical = json.dumps({**raw, "novelty": 1}, sort_keys=True).encode()
    digest = hashlib.sha256(canonical).hexdigest()
    office.journal.add_run(RunRow(digest, "newer", canonical, 1))
    office.preparer.take_up()
    view = run_view(office.journal, find_run(office.journal, "newer"))
    assert (view["state"], view["method"]) == ("ABORTED", "fedavg")
    assert "novelty: unknown key" in view["reason"]


def test_a_terminal_gets_a_live_table_and_lines_above_it(open_office, toy):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    office = open_office()
    out = Terminal()
    progress = Progress(out, "text", lambda: [run_view(office.journal, row) for row in office.journal.runs()])
    office.gather(toy.plan())
    with progress.showing():
        progress.notice(office.notices[-1])
        logging.getLogger("fedsecure.coordinator").error("a call failed:\x1b[2J steered")
    assert "waiting for a, b, c" in out.getvalue()
    assert "EXCHANGE" in out.getvalue()
    assert "[2J steered" in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()
